"""A described agent that fails is never taken for one that did well."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.engines import Failure, Request
from ratchet.kernel import Limits
from ratchet.modelserver import ModelServer, fail
from tests.engines.command_subject import Bench, CommandSubject, agent
from tests.engines.conftest import Place
from tests.engines.contract import (
    fails,
    propose,
)


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Bench:
    return Bench(place, tmp_path / "bin")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("pass", Failure.BAD_OUTPUT),
        ("print('   ')", Failure.BAD_OUTPUT),
        ("import sys; sys.exit(3)", Failure.CRASHED),
        ("import os; os.kill(os.getpid(), 11)", Failure.CRASHED),
        ("import os; print('x', flush=True); os.kill(os.getpid(), 9)", Failure.CRASHED),
        (
            "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)",
            Failure.TIMEOUT,
        ),
        ("import os, time\nos.close(1); os.close(2); time.sleep(60)", Failure.TIMEOUT),
        ("print('y\\n' * 1_000_000)", Failure.BAD_OUTPUT),
        ("while True: print('y' * 1_000_000)", Failure.BAD_OUTPUT),
        ("import sys\nwhile True: sys.stderr.write('y' * 1_000_000)", Failure.BAD_OUTPUT),
    ],
)
def test_a_program_that_behaves_badly_is_a_typed_failure(
    bench: Bench, workspace: Path, program: str, failure: Failure
) -> None:
    seconds = 3 if failure is Failure.TIMEOUT else 120
    failed = fails(bench.open(program), Request("x", workspace, deadline_seconds=seconds))
    assert failed.failure is failure
    assert failed.worked
    assert failed.hint


@pytest.mark.parametrize("printed", ["not JSON", "[1, 2]", '{"other": 1}', '{"result": null}', "{", ""])
def test_output_without_the_answer_is_bad_output(bench: Bench, workspace: Path, printed: str) -> None:
    engine = bench.open(f"print({printed!r})", 'answer = "json:result"')
    failed = fails(engine, Request("x", workspace))
    assert failed.failure is Failure.BAD_OUTPUT
    assert "result" in str(failed)


def test_an_answer_file_is_not_followed_out_of_the_session(
    bench: Bench, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("not yours")
    program = f"import os; os.symlink('{tmp_path}/secret', os.environ['HOME'] + '/out.md')"
    engine = bench.open(program, 'answer = "file:{home}/out.md"')
    assert fails(engine, Request("x", workspace)).failure is Failure.BAD_OUTPUT


def test_an_answer_file_is_not_followed_through_a_directory_either(
    bench: Bench, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("not yours")
    program = f"import os; os.symlink('{tmp_path}', os.environ['HOME'] + '/out')"
    engine = bench.open(program, 'answer = "file:{home}/out/secret"')
    assert fails(engine, Request("x", workspace)).failure is Failure.BAD_OUTPUT


@pytest.mark.parametrize(
    "program",
    [
        "open(os.environ['HOME'] + '/out.md', 'w').truncate(200 << 20)",
        "os.mkfifo(os.environ['HOME'] + '/out.md')",
    ],
)
def test_an_answer_file_that_cannot_be_an_answer_is_bad_output(
    bench: Bench, workspace: Path, program: str
) -> None:
    engine = bench.open(f"import os; {program}", 'answer = "file:{home}/out.md"')
    failed = fails(engine, Request("x", workspace))
    assert failed.failure is Failure.BAD_OUTPUT
    assert len(failed.session.text) == 0


def test_the_budget_ends_an_agent_that_tells_its_usage_on_the_way(bench: Bench, workspace: Path) -> None:
    engine = bench.open(
        "import time; print('{\"in\": 500}', flush=True); time.sleep(60)",
        'answer = "jsonl:t"\ninput_tokens_at = "in"',
    )
    failed = fails(engine, Request("x", workspace, limits=Limits(tokens=100), deadline_seconds=30))
    assert (failed.failure, failed.session.usage.tokens) == (Failure.BUDGET, 500)


def test_an_exit_code_means_what_the_description_says(bench: Bench, workspace: Path) -> None:
    engine = bench.open("import sys; sys.exit(75)", 'exit_codes = ["75=rate_limited", "3=refused"]')
    failed = fails(engine, Request("x", workspace))
    assert (failed.failure, failed.worked) == (Failure.RATE_LIMITED, True)


def test_output_means_what_the_description_says(bench: Bench, workspace: Path) -> None:
    engine = bench.open(
        "import sys; sys.exit('Too many requests, wait 2.5 s')",
        "patterns = ['refused=nothing', 'rate_limited=Too many.* (?P<seconds>[0-9.]+) s']\n"
        "nothing_done = '^Too many'",
    )
    failed = fails(engine, Request("x", workspace))
    assert (failed.failure, failed.retry_after) == (Failure.RATE_LIMITED, 2.5)


def test_a_failure_that_surely_did_nothing_may_be_tried_again(
    place: Place, model_server: ModelServer, tmp_path: Path, workspace: Path
) -> None:
    subject = CommandSubject(place, model_server, tmp_path / "bin")
    failed = fails(subject.open(fail(429, retry_after=2)), Request("x", workspace))
    assert (failed.failure, failed.worked, failed.retry_after) == (Failure.RATE_LIMITED, False, 2.0)


@pytest.mark.parametrize(
    ("program", "toml"),
    [
        (
            'print(\'{"t": "fine", "error": {"message": "no money"}}\')',
            'answer = "json:t"\nerror_at = "error.message"',
        ),
        ("print('fine'); print('litellm.APIError: no money')", "error_pattern = 'litellm.*'"),
    ],
)
def test_an_error_is_a_failure_even_with_exit_code_0(
    bench: Bench, workspace: Path, program: str, toml: str
) -> None:
    failed = fails(bench.open(program, toml), Request("x", workspace))
    assert failed.failure is Failure.CRASHED
    assert "no money" in str(failed)


def test_it_cannot_commit_by_itself(bench: Bench, workspace: Path) -> None:
    git = "['git', '-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '-qam', 'mine']"
    program = f"import subprocess; open('README.md', 'w'); print(subprocess.run({git}).returncode)"
    assert propose(bench.open(program), Request("x", workspace)).text != "0"
    assert (workspace / "README.md").read_text() == ""


def test_a_program_that_is_not_there_is_missing_and_the_hint_says_how_to_get_it(place: Place) -> None:
    toml = '[engines.command.mine]\nargv = ["no-such-agent"]\ninstall = "npm install -g no-such-agent"'
    failed = fails(place.open("mine", toml), Request("x"))
    assert (failed.failure, failed.worked) == (Failure.MISSING, False)
    assert failed.hint == "npm install -g no-such-agent"


def test_a_program_may_be_named_by_a_path_from_here(
    place: Place, tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent(tmp_path / "bin", "print('done')")
    monkeypatch.chdir(tmp_path / "bin")
    engine = place.open("mine", '[engines.command.mine]\nargv = ["./agent"]')
    assert propose(engine, Request("x", workspace)).text == "done"


def test_a_program_that_cannot_be_run_is_missing(place: Place, tmp_path: Path, workspace: Path) -> None:
    broken = agent(tmp_path / "bin")
    broken.write_text("#!/no/such/interpreter\n")
    toml = f'[engines.command.mine]\nargv = ["{broken}"]'
    failed = fails(place.open("mine", toml), Request("x", workspace))
    assert failed.failure is Failure.MISSING
