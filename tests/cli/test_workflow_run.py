"""`ratchet workflow run`: real steps in the real sandbox, real signals."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.kernel import RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.runs import list_runs, list_steps
from ratchet.runtime import Runtime, start_run
from ratchet.runtime.processes import leave, register
from tests.cli.conftest import Ratchet
from tests.cli.program import Program
from tests.cli.workflow_files import COUNT, SPLIT, counting, step, workflow, write
from tests.waiting import eventually

Keep = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]
ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
TEXT = "text=the quick brown foxes jump"


@pytest.mark.soak
def test_a_run_ends_with_its_outputs_and_its_steps_and_the_next_one_knows_them(
    ratchet: Ratchet, tmp_path: Path
) -> None:
    file = write(tmp_path, counting())
    done = ratchet("workflow", "run", file, "--input", TEXT, "--json")
    assert done.code == 0, done.err
    told = done.json
    assert (told["status"], told["outputs"]) == ("completed", {"told": "5 words, the longest is quick"})
    assert list(told["steps"]) == ["split", "count", "longest", "tell"]
    for record in told["steps"].values():
        assert (record["status"], record["error"], record["cached"]) == ("completed", None, False)
        assert record["metrics"]["exit_code"] == 0
        assert record["metrics"]["wall_ms"] > 0
    assert ratchet("workflow", "show", str(told["run_id"]), "--json").json == told

    again = ratchet("workflow", "run", file, "--input", TEXT)
    assert (again.code, again.out) == (0, "5 words, the longest is quick\n")
    assert "4 of them known from before" in again.err
    again = ratchet("workflow", "run", file, "--input", TEXT, "--no-cache", "--json").json
    assert [record["cached"] for record in again["steps"].values()] == [False] * 4

    plan = ratchet("workflow", "plan", file).out
    assert "took" in plan
    assert "as it went before" in plan
    assert [run["run_id"] for run in ratchet("workflow", "list", "--json").json["runs"]] == [3, 2, 1]


@ONE_DATABASE
def test_missing_and_wrong_inputs_are_all_named_and_nothing_is_started(
    ratchet: Ratchet, tmp_path: Path, ledger: Ledger
) -> None:
    spec = counting()
    spec["inputs"] = {"topic": {"type": "string"}, "text": {"type": "string"}, "n": {"type": "number"}}
    file = write(tmp_path, spec)
    told = ratchet("workflow", "run", file, "--input", "text=a", "--input", "n=2")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error: Missing required input: topic\n")
    assert "--input KEY=VALUE" in told.err
    several = ratchet("workflow", "run", file, "--input", "n=two", "--input", "m=1").err
    assert ("Input n must be a number" in several, "Unknown input: m" in several) == (True, True)
    assert ratchet("workflow", "run", file, "--input", "topic").code == 2
    with ledger.read() as tx:
        assert list_runs(tx) == []


@ONE_DATABASE
def test_an_input_is_the_text_of_a_file_and_one_that_is_not_there_starts_nothing(
    ratchet: Ratchet, tmp_path: Path, ledger: Ledger
) -> None:
    spec = workflow(
        [step("join", input_mapping={"text": "inputs.text", "rows": "inputs.rows"})],
        {"join": "def run(text, rows):\n    return [text, *rows]\n"},
        inputs={"text": {"type": "string"}, "rows": {"type": "array"}},
    )
    call = ("workflow", "run", write(tmp_path, spec), "--input", f"rows=@{tmp_path / 'rows.json'}")
    absent = ratchet(*call, "--input", "text=x")
    assert (absent.code, f"{tmp_path / 'rows.json'} cannot be read" in absent.err) == (2, True)
    with ledger.read() as tx:
        assert list_runs(tx) == []
    (tmp_path / "rows.json").write_text("[1, 2]\n")
    (tmp_path / "text").write_text("tides")
    assert ratchet(*call, "--input", f"text=@{tmp_path / 'text'}").json == {"join": ["tides", 1, 2]}
    assert ratchet(*call, "--input", "text=@@ada").json == {"join": ["@ada", 1, 2]}


@ONE_DATABASE
def test_a_command_carries_its_own_run_and_names_the_one_of_a_dead_worker(
    ratchet: Ratchet, tmp_path: Path, ledger: Ledger, runtime: Runtime
) -> None:
    with ledger.write() as tx:
        dead = start_run(tx, runtime, "demo.primes", kind="workflow", name="primes")
        register(tx, "gone", "worker", 1)
        assert runtime.jobs.claim(tx, "gone", 1)
        leave(tx, "gone", reason="test")
    file = write(tmp_path, counting())
    done = ratchet("workflow", "run", file, "--input", TEXT)
    assert done.code == 0, done.err
    assert f"Cut off earlier and not resumed: run {dead} (primes)." in done.err
    assert f"ratchet runs cancel {dead}" in done.err
    with ledger.read() as tx:
        assert [run.status for run in list_runs(tx)] == [RunStatus.COMPLETED, RunStatus.PENDING]


@pytest.mark.soak
@ONE_DATABASE
def test_inputs_come_from_a_file_and_from_the_line_which_is_stronger(
    ratchet: Ratchet, tmp_path: Path
) -> None:
    spec = workflow(
        [step("add", input_mapping={"a": "inputs.a", "b": "inputs.b"})],
        {"add": "def run(a, b):\n    return a + b\n"},
        inputs={"a": {"type": "number"}, "b": {"type": "number"}},
    )
    given = tmp_path / "given.json"
    given.write_text('{"a": 1, "b": 2}')
    call = ("workflow", "run", write(tmp_path, spec), "--inputs", str(given))
    assert ratchet(*call, "--input", "b=40").json == {"add": 41}
    given.write_text("[1]")
    assert ratchet(*call).code == 2
    given.write_text("{")
    assert ratchet(*call).code == 2


@pytest.mark.soak
def test_a_step_that_fails_is_named_and_all_else_is_done(ratchet: Ratchet, tmp_path: Path) -> None:
    spec = counting()
    spec["tools"]["count"]["source_code"] = "def run(words):\n    raise ValueError('cannot count')\n"
    spec["outputs"]["longest"] = {"source_reference": "steps.longest.output"}
    file = write(tmp_path, spec)
    done = ratchet("workflow", "run", file, "--input", TEXT)
    assert done.code == 1
    assert json.loads(done.out)["longest"] == "quick"
    assert "error: step count: " in done.err
    assert "cannot count" in done.err
    assert "1 failed" in done.err
    told = ratchet("workflow", "show", "1", "--json").json
    assert {name: record["status"] for name, record in told["steps"].items()} == {
        "split": "completed",
        "count": "failed",
        "longest": "completed",
        "tell": "skipped",
    }
    assert "ValueError" in told["steps"]["count"]["error"]
    assert "error: step count: " in ratchet("workflow", "show", "1").err


@pytest.mark.soak
@ONE_DATABASE
def test_a_program_that_is_not_there_is_exit_3_with_how_to_install_it(
    ratchet: Ratchet, tmp_path: Path
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "sing.yaml").write_text(
        "type: executable\nexecutable: {command: no-such-singer, install_command: apt install singer}\n"
    )
    spec = workflow([step("sing", type="existing_tool")], portable=False)
    done = ratchet("workflow", "run", write(tmp_path, spec))
    assert done.code == 3, done.err
    assert "error: step sing: " in done.err
    assert "hint: install it: apt install singer" in done.err
    assert ratchet("workflow", "show", "1", "--json").json["steps"]["sing"]["metrics"]["exit_code"] == 127


@ONE_DATABASE
def test_a_workflow_that_cannot_run_is_refused_with_every_reason(ratchet: Ratchet, tmp_path: Path) -> None:
    spec = workflow(
        [step("a", "nobody", type="existing_tool"), step("b", "b", depends_on=["b"])], {"b": COUNT}
    )
    done = ratchet("workflow", "run", write(tmp_path, spec))
    assert (done.code, done.out) == (1, "")
    assert "step b" in done.err
    assert "validate" in done.err


@pytest.mark.soak
@ONE_DATABASE
def test_everything_that_happens_is_followed_as_lines_and_as_json(ratchet: Ratchet, tmp_path: Path) -> None:
    loud = "import sys\n\ndef run(text):\n    print('splitting', file=sys.stderr)\n    return text.split()\n"
    spec = workflow(
        [step("split", input_mapping={"text": "inputs.text"})],
        {"split": loud},
        inputs={"text": {"type": "string"}},
    )
    file = write(tmp_path, spec)
    followed = ratchet("workflow", "run", file, "--input", TEXT, "--follow")
    assert followed.json == {"split": ["the", "quick", "brown", "foxes", "jump"]}
    assert "split | splitting" in followed.err.splitlines()
    assert "split: done" in followed.err.splitlines()
    *events, last = ratchet(
        "workflow", "run", file, "--input", TEXT, "--no-cache", "--follow", "--json"
    ).lines
    assert {
        "run.running",
        "step.created",
        "step.running",
        "step.output",
        "step.completed",
        "run.completed",
    } <= {event["type"] for event in events}
    [said] = [event["data"] for event in events if event["type"] == "step.output"]
    assert said == {"name": "split", "text": "splitting\n"}
    assert (last["status"], last["steps"]["split"]["status"]) == ("completed", "completed")


@ONE_DATABASE
def test_a_detached_run_waits_for_a_worker(ratchet: Ratchet, tmp_path: Path, ledger: Ledger) -> None:
    file = write(tmp_path, counting())
    call = ("workflow", "run", file, "--input", TEXT, "--detach")
    assert ratchet(*call, "--priority", "2", "--json").json == {"run_id": 1}
    assert ratchet(*call, "--background").out == "Run 2 waits for a worker.\n"
    with ledger.read() as tx:
        assert [run.status for run in list_runs(tx)] == [RunStatus.PENDING] * 2
    assert [job["priority"] for job in ratchet("queue", "jobs", "--json").json] == [9, 2]
    assert ratchet(*call, "--follow").code == 2


@pytest.mark.soak
@ONE_DATABASE
def test_a_run_waits_for_a_person_and_goes_on_with_the_answer(ratchet: Ratchet, tmp_path: Path) -> None:
    spec = workflow(
        [
            {
                "step_id": "ask",
                "type": "approval",
                "prompt_template": "Continue with {text}?",
                "input_mapping": {"text": "inputs.text"},
            },
            step("split", input_mapping={"text": "inputs.text"}, depends_on=["ask"]),
        ],
        {"split": SPLIT},
        inputs={"text": {"type": "string"}},
    )
    held = ratchet("workflow", "run", write(tmp_path, spec), "--input", "text=a b")
    assert held.code == 1
    assert "Run 1 of counting is blocked" in held.err
    assert "ratchet approval list" in held.err
    [asked] = ratchet("approval", "list", "--json").json
    assert "Continue with a b?" in asked["question"]


@pytest.mark.soak
@ONE_DATABASE
def test_an_interrupted_run_is_cancelled_and_what_it_did_is_kept(
    program: Program, tmp_path: Path, ending: Keep, ledger: Ledger
) -> None:
    slow = "import time\n\ndef run(words):\n    time.sleep(60)\n"
    spec = workflow(
        [
            step("split", input_mapping={"text": "inputs.text"}),
            step("slow", input_mapping={"words": "steps.split.output"}),
        ],
        {"split": SPLIT, "slow": slow},
        inputs={"text": {"type": "string"}},
    )
    file = write(tmp_path, spec)
    process = ending(program.start("workflow", "run", file, "--input", TEXT))
    eventually(lambda: "running" in _statuses(ledger))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "is cancelled: 2 steps, 1 completed" in err
    assert "What was done is kept" in err
    spec["tools"]["slow"]["source_code"] = COUNT
    again = program("workflow", "run", write(tmp_path, spec), "--input", TEXT, "--json").json
    assert {name: record["cached"] for name, record in again["steps"].items()} == {
        "split": True,
        "slow": False,
    }


def _statuses(ledger: Ledger) -> list[str]:
    with ledger.read() as tx:
        runs = list_runs(tx)
        steps = list_steps(tx, runs[0].id) if runs else []
        return [str(step.status) for step in steps if step.name == "slow"]
