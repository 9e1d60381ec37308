"""Recipes that do not come to a score by their own doing: each ends with a status, a reason, and nothing left over."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet import sandbox
from ratchet.kernel import TrialStatus
from ratchet.research.adapter import Program
from ratchet.sandbox import Bounds
from tests.research.measurement.conftest import (
    COMMAND,
    NODE,
    PRINT,
    SCORE_STDOUT,
    SOLVE,
    MakeBench,
    ended,
    living,
)

CRASH, OVERRUN = TrialStatus.CRASH, TrialStatus.TRAIN_BUDGET_OVERRUN
TIGHT = Bounds(
    wall_seconds=2, memory_bytes=96 * 2**20, processes=16, output_bytes=64 * 1024, file_bytes=2**20
)


def node(body: str) -> str:
    return "def solve(asked):\n" + "".join(f"    {line}\n" for line in body.splitlines())


@pytest.mark.soak
@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (
            "raise ValueError('no such angle')",
            CRASH,
            "the trial: it exited with 1: ValueError: no such angle (recipe.py:2 in solve)",
        ),
        ("return 1 / 0", CRASH, "ZeroDivisionError: division by zero (recipe.py:2 in solve)"),
        ("return float('nan')", CRASH, "solve returned what is not JSON: Out of range float"),
        ("return {1, 2}", CRASH, "solve returned what is not JSON"),
        ("import os; os._exit(0)", CRASH, "ended without a JSON result"),
        ("import os; os._exit(127)", CRASH, "it exited with 127"),
        ("import os; os.abort()", CRASH, "it was ended by SIG"),
        ("return bytearray(10**10)", CRASH, "MemoryError"),
        ("import os; os.fork()", CRASH, "PermissionError"),
        ("open('/tmp/left', 'w')", CRASH, "(recipe.py:2 in solve)"),
        ("while True: print('x' * 65536)", CRASH, "more output than it may"),
        ("while True: pass", OVERRUN, "it did not end in time"),
        ("import sys; sys.exit(3)", CRASH, "SystemExit: 3"),
        (
            "def deeper(n):\n    raise KeyError(n)\nreturn deeper(4)",
            CRASH,
            "KeyError: 4 (recipe.py:3 in deeper)",
        ),
    ],
)
def test_a_function_that_fails(make_bench: MakeBench, body: str, status: TrialStatus, reason: str) -> None:
    bench = make_bench(trial=replace(NODE, bounds=TIGHT))
    failed = bench.fail(bench.change(recipe=node(body)))
    assert failed.status is status, failed.reason
    assert reason in failed.reason
    assert failed.facts["trials"][0]["layers"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("raise ValueError('bad')", CRASH, "it exited with 1: ValueError: bad (recipe.py:1 in <module>)"),
        ("import sys; sys.exit(3)", CRASH, "it exited with 3"),
        ("import os; os.abort()", CRASH, "it was ended by SIG"),
        ("import os; os.kill(os.getpid(), 9)", CRASH, "SIGKILL"),
        ("x = bytearray(10**9)", CRASH, "Memory"),
        ("x = [bytearray(2**20) for _ in iter(int, 1)]", CRASH, "emory"),
        ("import os\nwhile True: os.fork()", CRASH, "processes"),
        ("while True: print('x' * 65536)", CRASH, "more output than it may"),
        ("import sys, os\nopen(sys.argv[2] + '/big', 'wb').write(bytes(2**22))", CRASH, "File too large"),
        ("open('left', 'w')", CRASH, "Read-only file system: 'left' (recipe.py:1 in <module>)"),
        ("open('/usr/left', 'w')", CRASH, "Read-only file system"),
        ("import time; time.sleep(60)", OVERRUN, "it did not end in time"),
        ("import sys, os; os.symlink('/etc/passwd', sys.argv[2] + '/answer')", CRASH, "cannot be scored"),
        ("import sys, os; os.mkfifo(sys.argv[2] + '/answer')", CRASH, "cannot be scored"),
    ],
)
def test_a_command_that_fails(make_bench: MakeBench, code: str, status: TrialStatus, reason: str) -> None:
    bench = make_bench(PRINT, SCORE_STDOUT, trial=replace(COMMAND, bounds=TIGHT))
    failed = bench.fail(bench.change(recipe=code))
    assert failed.status is status, failed.reason
    assert reason in failed.reason
    assert str(bench.repository.workspaces) not in failed.reason


@pytest.mark.soak
@pytest.mark.parametrize("program", [NODE, COMMAND])
def test_too_much_cpu_time_is_a_budget_overrun(make_bench: MakeBench, program: Program) -> None:
    bench = make_bench(trial=replace(program, bounds=Bounds(wall_seconds=60, cpu_seconds=1)))
    failed = bench.fail(
        bench.change(recipe=node("while True: pass") + "solve(1) if __name__ == '__main__' else 0")
    )
    assert failed.status is OVERRUN
    assert "CPU" in failed.reason


def test_the_first_process_that_fails_ends_the_measurement(make_bench: MakeBench) -> None:
    recipe = "def solve(asked):\n    assert asked['seed'] != 1, 'unlucky'\n    return 1.0\n"
    bench = make_bench(recipe, processes_per_measurement=3)
    failed = bench.fail()
    assert ended(failed) == (
        CRASH,
        "the trial: it exited with 1: AssertionError: unlucky (recipe.py:2 in solve)",
    )
    assert [each["exit_code"] for each in failed.facts["trials"]] == [0, 1]


def test_what_it_said_is_kept_in_bounds(make_bench: MakeBench) -> None:
    failed = make_bench(node("print('x' * 50_000)\nraise ValueError('y' * 50_000)")).fail()
    assert len(failed.reason) < 400
    assert len(failed.facts["trials"][0]["stderr"]) < 5000


def test_an_answer_that_is_nested_too_deeply_is_a_crash(make_bench: MakeBench) -> None:
    recipe = "import os\ndef solve(asked):\n    os.write(3, b'[' * 10**5 + b']' * 10**5)\n    os._exit(0)\n"
    assert make_bench(recipe).fail().status is CRASH


def test_a_commit_without_its_file_is_a_crash_and_an_unknown_commit_is_not(make_bench: MakeBench) -> None:
    bench = make_bench()
    assert ended(bench.fail(bench.change(recipe=None, other="x = 1"))) == (
        CRASH,
        "the commit has no recipe.py",
    )
    assert bench.fail("f" * 40).status is TrialStatus.INFRA_ERROR


def test_a_program_that_is_not_there_is_no_fault_of_the_recipe(make_bench: MakeBench) -> None:
    absent = make_bench(PRINT, SCORE_STDOUT, trial=Program(argv=("no-such-program",)))
    assert absent.fail().status is TrialStatus.INFRA_ERROR
    in_a_script = make_bench(PRINT, SCORE_STDOUT, trial=Program(argv=("bash", "-c", "no-such-program")))
    failed = in_a_script.fail()
    assert failed.status is TrialStatus.INFRA_ERROR
    assert "no-such-program" in failed.reason


@pytest.mark.soak
def test_a_sandbox_that_is_killed_is_no_fault_of_the_recipe(make_bench: MakeBench) -> None:
    bench = make_bench("import time\ndef solve(asked):\n    time.sleep(60)\n")
    killing = threading.Timer(2.0, sandbox.close)
    killing.start()
    failed = bench.fail()
    killing.join()
    assert failed.status is TrialStatus.INFRA_ERROR
    assert bench.measure(bench.change(recipe=SOLVE)).score == 1.5


def test_a_checkout_that_cannot_be_made_is_no_fault_of_the_recipe(make_bench: MakeBench) -> None:
    bench = make_bench(PRINT, SCORE_STDOUT, trial=COMMAND)
    bench.repository.workspaces.write_text("in the way")
    failed = bench.fail()
    assert failed.status is TrialStatus.INFRA_ERROR
    assert "workspaces cannot be made" in failed.reason


def test_a_command_that_has_run_before_is_not_missing_when_it_says_so(make_bench: MakeBench) -> None:
    bench = make_bench(PRINT, SCORE_STDOUT, trial=COMMAND)
    feigned = bench.change(recipe="raise SystemExit(127)\n")
    assert bench.fail(feigned).status is TrialStatus.INFRA_ERROR
    bench.measure()
    assert bench.fail(feigned).status is CRASH


def test_grandchildren_die_with_the_trial(make_bench: MakeBench) -> None:
    marker = f"ratchet-measured-grandchild-{os.getpid()}"
    recipe = f"""
        import subprocess, sys
        sleeps = [sys.executable, "-c", "import time; time.sleep(600)", "{marker}"]
        subprocess.Popen(sleeps, start_new_session=True)
        print(1)
    """
    assert make_bench(recipe, SCORE_STDOUT, trial=COMMAND).measure().score == 1.0
    assert living(marker) == []


def test_cancelling_a_measurement_kills_the_whole_tree_and_frees_the_slot(make_bench: MakeBench) -> None:
    marker = f"ratchet-measured-cancelled-{os.getpid()}"
    recipe = f"""
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "import time; time.sleep(600)", "{marker}"])
    """
    program = replace(COMMAND, bounds=Bounds(wall_seconds=600))
    bench = make_bench(recipe, SCORE_STDOUT, trial=program)
    quick = bench.change(recipe=PRINT)

    async def cancel() -> float:
        task = asyncio.create_task(bench.meter.measure(bench.base, seed=0))
        while not living(marker):  # noqa: ASYNC110 - nobody else can tell when it has begun
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert living(marker) == []
        many = [bench.meter.measure(quick, seed=0) for _ in range(len(os.sched_getaffinity(0)))]
        return (await asyncio.gather(*many))[0].score

    assert asyncio.run(cancel()) == 1.5


ATTACK = """
    import os, pathlib, sys
    found = "0"
    for place in ({evaluator!r}, {root!r}, {origin!r}, "/proc/1/root" + {evaluator!r}):
        try:
            for path in pathlib.Path(place).glob("**/secret.txt"):
                found = path.read_text()
        except OSError:
            pass
    def solve(asked):
        return float(found)
    if __name__ == "__main__":
        print(found)
"""
SCORE_ANY = """
    import pathlib
    def score(asked):
        assert pathlib.Path(__file__).with_name("secret.txt").read_text() == "41"
        trial = asked["trial"]
        return {"score": trial["answer"] if "answer" in trial else float(open(trial["stdout"]).read())}
"""


@pytest.mark.parametrize("program", [NODE, COMMAND])
def test_reading_the_evaluator(make_bench: MakeBench, program: Program, tmp_path: Path) -> None:
    files = {"evaluator/secret.txt": "41"}
    bench = make_bench(PRINT, SCORE_ANY, trial=program, files=files)
    root = bench.task.root
    attack = ATTACK.format(evaluator=str(root / "evaluator"), root=str(root), origin=str(tmp_path))
    control: dict[str, str] = {"__name__": "control"}
    exec(bench.repository.read_file(bench.change(recipe=attack), "recipe.py"), control)
    assert control["found"] == "41"
    assert bench.measure(bench.change(recipe=attack)).score == 0.0


@pytest.mark.parametrize("program", [NODE, COMMAND])
def test_reading_the_evaluator_of_a_task_that_lies_among_pythons_packages(
    make_bench: MakeBench, program: Program, in_packages: Path
) -> None:
    files = {"evaluator/secret.txt": "41"}
    attack = ATTACK.format(evaluator="/none", root="/none", origin=str(in_packages))
    unpinned = make_bench(PRINT, SCORE_ANY, trial=program, files=files, root=in_packages / "task")
    assert unpinned.measure(unpinned.change(recipe=attack)).score == 0.0
    copied = make_bench(PRINT, SCORE_ANY, trial=program, files=files)
    assert copied.measure(copied.change(recipe=attack)).score == 41.0
    hidden = make_bench(PRINT, SCORE_ANY, trial=program, files=files, origin=in_packages / "task")
    assert hidden.measure(hidden.change(recipe=attack)).score == 0.0


def test_forging_results(make_bench: MakeBench) -> None:
    recipe = """
        import os, pathlib, sys
        for number in range(3, 64):
            try:
                os.write(number, b'{"score": 999}')
            except OSError:
                pass
        out = pathlib.Path(sys.argv[2])
        for place in (out, out / "..", out / "../..", pathlib.Path("/inputs"), pathlib.Path("/")):
            for name in ("result.json", "said-0/stdout", "../said-0/stdout", "evaluate.py"):
                try:
                    (place / name).parent.mkdir(exist_ok=True)
                    (place / name).write_text('{"score": 999}')
                except OSError:
                    pass
        print(1)
    """
    assert make_bench(recipe, SCORE_STDOUT, trial=COMMAND).measure().score == 1.0


def test_a_function_that_writes_two_answers_has_none(make_bench: MakeBench) -> None:
    recipe = "import os\ndef solve(asked):\n    os.write(3, b'99 ')\n    return 1\n"
    failed = make_bench(recipe).fail()
    assert failed.status is CRASH
    assert "without a JSON result" in failed.reason


def test_the_secrets_of_this_process_are_out_of_sight(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "the-key")
    recipe = """
        import os, pathlib
        seen = str(dict(os.environ))
        for process in ("self", 1, os.getppid()):
            try:
                seen += pathlib.Path(f"/proc/{process}/environ").read_text()
            except OSError:
                pass
        print(float("the-key" in seen))
    """
    assert make_bench(recipe, SCORE_STDOUT, trial=COMMAND).measure().score == 0.0


@pytest.mark.soak
def test_an_endless_loop_harms_nobody_after_it(make_bench: MakeBench) -> None:
    bench = make_bench(trial=replace(NODE, bounds=Bounds(wall_seconds=1)))
    assert bench.fail(bench.change(recipe="while True: pass")).status is OVERRUN
    assert bench.measure().score == 1.5
