"""Candidates that want a score which they did not earn. Where it is cheap, a control shows that the attack is real."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.judges import Candidate, CommandJudge, EvaluatorTrial
from ratchet.kernel import Outcome, Verdict
from ratchet.sandbox import Bounds
from tests.judges.conftest import PYTHON, MakeCandidate, ask
from tests.judges.evaluators import READS_OUT, READS_STDOUT
from tests.judges.scoring import Scoring

MakeScore = Callable[..., Scoring]
SECRET = {"secret.txt": "the answer is 41"}
HONEST = "import os, pathlib; pathlib.Path(os.environ['RATCHET_OUT'], 'answer.txt').write_text('a guess')\n"
FORGED = '{"score": 999}'
FORGING = f"import os; print({FORGED!r}, flush=True); os._exit(0)\n"


@pytest.fixture
def guessing(make_score: MakeScore) -> Scoring:
    """Scores 1 for the secret answer and 0 for any other."""
    return make_score(READS_OUT, files=SECRET)


def in_the_open(directory: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an attack as it would run without any protection."""
    (directory / "attack.py").write_text(textwrap.dedent(code))
    environment = {"RATCHET_OUT": str(directory)}
    return subprocess.run(
        [sys.executable, "attack.py", *arguments],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def score_of(judge: Scoring, candidate: Candidate) -> float | None:
    verdict = ask(judge, candidate).verdict
    assert verdict.outcome is Outcome.PASSED, verdict.reason
    return verdict.score


def living(marker: str) -> list[str]:
    """The processes on this machine that have `marker` among their arguments."""
    found = []
    for place in Path("/proc").iterdir():
        try:
            words = (place / "cmdline").read_bytes() if place.name.isdigit() else b""
        except OSError:
            continue
        if marker.encode() in words:
            found.append(place.name)
    return found


def test_the_secret_answer_is_worth_a_point_and_a_guess_is_not(
    guessing: Scoring, make_candidate: MakeCandidate
) -> None:
    assert score_of(guessing, make_candidate({"main.py": HONEST})) == 0.0
    known = HONEST.replace("a guess", SECRET["secret.txt"])
    assert score_of(guessing, make_candidate({"main.py": known})) == 1.0


def test_overwriting_the_evaluator(guessing: Scoring, make_candidate: MakeCandidate, tmp_path: Path) -> None:
    evaluator = guessing.evaluator.pinned.directory
    attack = f"""
        import pathlib, sys
        for name in ("evaluate.py", "sitecustomize.py", "json.py"):
            try:
                pathlib.Path(sys.argv[1], name).write_text({FORGING!r})
            except OSError as error:
                print(error, file=sys.stderr)
    """
    control = tmp_path / "control"
    control.mkdir()
    in_the_open(control, attack, str(control))
    assert FORGED in (control / "evaluate.py").read_text()
    main = HONEST + textwrap.dedent(attack).replace("sys.argv[1]", repr(str(evaluator)))
    assert score_of(guessing, make_candidate({"main.py": main})) == 0.0
    assert sorted(path.name for path in evaluator.iterdir()) == ["evaluate.py", "secret.txt"]


def test_reading_the_secret_answer(guessing: Scoring, make_candidate: MakeCandidate, tmp_path: Path) -> None:
    secret = guessing.evaluator.pinned.directory / "secret.txt"
    attack = f"""
        import os, pathlib
        found = "nothing"
        for root in ("", "/proc/self/root", "/proc/1/root", f"/proc/{{os.getppid()}}/root"):
            try:
                found = pathlib.Path(root + {str(secret)!r}).read_text()
            except OSError:
                pass
        pathlib.Path(os.environ["RATCHET_OUT"], "answer.txt").write_text(found)
    """
    in_the_open(tmp_path, attack)
    assert (tmp_path / "answer.txt").read_text() == SECRET["secret.txt"]
    assert score_of(guessing, make_candidate({"main.py": attack})) == 0.0


def test_leaving_a_link_to_the_secret_answer(guessing: Scoring, make_candidate: MakeCandidate) -> None:
    secret = guessing.evaluator.pinned.directory / "secret.txt"
    attack = f"import os; os.symlink({str(secret)!r}, os.environ['RATCHET_OUT'] + '/answer.txt')"
    verdict = ask(guessing, make_candidate({"main.py": attack})).verdict
    assert (verdict.outcome, verdict.score) == (Outcome.FAILED, None)
    assert "answer.txt is neither a file nor a directory" in verdict.reason


def test_leaving_a_pipe_for_the_evaluator_to_hang_on(
    guessing: Scoring, make_candidate: MakeCandidate
) -> None:
    attack = "import os; os.mkfifo(os.environ['RATCHET_OUT'] + '/answer.txt')"
    assert ask(guessing, make_candidate({"main.py": attack})).verdict.outcome is Outcome.FAILED


def test_writing_result_files_of_its_own(guessing: Scoring, make_candidate: MakeCandidate) -> None:
    attack = f"""
        import os, pathlib
        out = os.environ["RATCHET_OUT"]
        for place in (out, "/tmp", ".", out + "/..", "/", "/dev/shm"):
            for name in ("result.json", "metrics.json", "score.json", "stdout", "said/stdout", "trial.json"):
                try:
                    pathlib.Path(place, name).write_text('{FORGED}')
                except OSError:
                    pass
    """
    assert score_of(guessing, make_candidate({"main.py": HONEST + textwrap.dedent(attack)})) == 0.0


def test_printing_a_score_to_every_descriptor_it_holds(
    guessing: Scoring, make_candidate: MakeCandidate, tmp_path: Path
) -> None:
    attack = f"""
        import os
        for number in range(256):
            try:
                os.write(number, b'{FORGED}\\n')
            except OSError:
                pass
    """
    control = in_the_open(tmp_path, attack)
    assert FORGED in control.stdout
    assert FORGED in control.stderr
    assert score_of(guessing, make_candidate({"main.py": HONEST + textwrap.dedent(attack)})) == 0.0


def test_modules_of_its_own_in_the_place_of_the_evaluators(
    make_score: MakeScore, make_candidate: MakeCandidate
) -> None:
    names = ("sitecustomize.py", "usercustomize.py", "json.py", "pathlib.py", "conftest.py", "evaluate.py")
    candidate = make_candidate({"main.py": HONEST, **dict.fromkeys(names, FORGING)})
    control = subprocess.run(
        [sys.executable, "-c", "import json"],
        cwd=candidate.directory,
        env={"PYTHONPATH": str(candidate.directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert control.stdout.strip() == FORGED
    judge = make_score(READS_OUT, files=SECRET)
    unisolated = replace(judge, evaluator=replace(judge.evaluator, argv=("{python}", "evaluate.py")))
    assert score_of(unisolated, candidate) == 0.0


def test_changing_its_answer_after_the_end(guessing: Scoring, make_candidate: MakeCandidate) -> None:
    marker = f"ratchet-late-writer-{os.getpid()}"
    late = "import os, time\nwhile True:\n open(os.environ['RATCHET_OUT'] + '/late', 'a').write('x'); time.sleep(0.01)"
    attack = f"""
        import atexit, os, subprocess, sys
        late = [sys.executable, "-c", {late!r}, "{marker}"]
        subprocess.Popen(late, start_new_session=True)
        atexit.register(lambda: os.fork() or os.setsid() or subprocess.call(late))
    """
    assert score_of(guessing, make_candidate({"main.py": HONEST + textwrap.dedent(attack)})) == 0.0
    assert living(marker) == []


@pytest.mark.soak
def test_an_endless_loop_with_grandchildren_ends_and_harms_nobody_after_it(
    make_score: MakeScore, make_candidate: MakeCandidate
) -> None:
    marker = f"ratchet-grandchild-{os.getpid()}"
    attack = f"""
        import signal, subprocess, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sleeps = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        for _ in range(3):
            subprocess.Popen([sys.executable, "-c", sleeps, "{marker}"], start_new_session=True)
        while True:
            pass
    """
    trial = EvaluatorTrial(argv=(*PYTHON, "main.py"), bounds=Bounds(wall_seconds=1.5))
    judge = make_score(READS_OUT, files=SECRET, trial=trial)
    assert ask(judge, make_candidate({"main.py": attack})).verdict.outcome is Outcome.FAILED
    assert living(marker) == []
    assert score_of(judge, make_candidate({"main.py": HONEST})) == 0.0


def test_the_environment_and_the_processes_of_ratchet_are_out_of_sight(
    make_score: MakeScore, make_candidate: MakeCandidate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("API_KEY", "the-key")
    attack = f"""
        import os, pathlib
        seen = [str(dict(os.environ))]
        for process in (os.getppid(), {os.getpid()}, 1):
            try:
                seen.append(pathlib.Path(f"/proc/{{process}}/environ").read_text())
            except OSError:
                pass
        print(float("the-key" in "".join(seen)))
    """
    (tmp_path / "attack.py").write_text(textwrap.dedent(attack))
    control = subprocess.run(
        [sys.executable, tmp_path / "attack.py"], capture_output=True, text=True, check=False
    )
    assert control.stdout == "1.0\n"
    assert score_of(make_score(READS_STDOUT), make_candidate({"main.py": attack})) == 0.0


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e400"])
def test_a_number_that_cannot_be_compared(
    make_score: MakeScore, make_candidate: MakeCandidate, number: str
) -> None:
    judge = make_score(READS_STDOUT)
    verdict = ask(judge, make_candidate({"main.py": f"print({number!r})"})).verdict
    assert (verdict.outcome, verdict.score) == (Outcome.ERROR, None)


def test_an_evaluator_that_was_talked_into_changing_itself(
    make_score: MakeScore, make_candidate: MakeCandidate
) -> None:
    hijacked = f"open('evaluate.py', 'w').write('')\nprint('{FORGED}')"
    judge = make_score(hijacked)
    verdict = ask(judge, make_candidate()).verdict
    assert verdict.outcome is Outcome.ERROR
    assert (judge.evaluator.pinned.directory / "evaluate.py").read_text() == hijacked


@pytest.mark.soak
def test_an_evaluator_that_is_exchanged_before_or_while_it_is_used(
    make_score: MakeScore, make_candidate: MakeCandidate
) -> None:
    judge = make_score(READS_STDOUT)
    file = judge.evaluator.pinned.directory / "evaluate.py"
    candidate = make_candidate({"main.py": "import time; time.sleep(1.5); print(1)"})
    original = file.read_text()
    exchange = threading.Timer(0.7, lambda: file.write_text(FORGING))
    exchange.start()
    during = ask(judge, candidate).verdict
    exchange.join()
    before = ask(judge, candidate).verdict
    file.write_text(original)
    after = ask(judge, candidate).verdict
    assert [_end(each) for each in (during, before, after)] == [(Outcome.ERROR, None)] * 2 + [
        (Outcome.PASSED, 1.0)
    ]
    assert "was changed" in during.reason


def test_a_flood_of_files_and_of_output(make_score: MakeScore, make_candidate: MakeCandidate) -> None:
    attack = "import os\nwhile True: os.write(1, b'x' * 65536)"
    assert (
        ask(make_score(READS_STDOUT), make_candidate({"main.py": attack})).verdict.outcome is Outcome.FAILED
    )
    huge = "import os; open(os.environ['RATCHET_OUT'] + '/huge', 'wb').truncate(1 << 45)"
    assert ask(make_score(READS_STDOUT), make_candidate({"main.py": huge})).verdict.outcome is Outcome.FAILED


def test_a_command_whose_report_is_a_link_or_a_pipe(make_candidate: MakeCandidate) -> None:
    good = "<testsuite><testcase name='a'/></testsuite>"
    for trick in ("os.symlink(os.getcwd() + '/good.xml', report)", "os.mkfifo(report)", "os.mkdir(report)"):
        code = f"import os, sys; report = sys.argv[1] + '/junit.xml'; {trick}"
        judge = CommandJudge(name="tests", argv=(*PYTHON, "-c", code, "{reports}"), junit="junit.xml")
        assert ask(judge, make_candidate({"good.xml": good})).verdict.outcome is Outcome.ERROR


@pytest.mark.soak
def test_tests_that_stop_the_tester_before_it_could_report(make_candidate: MakeCandidate) -> None:
    """A test that leaves with exit code 0 takes pytest with it; its report tells that nothing was counted."""
    candidate = make_candidate({"test_it.py": "import os\ndef test_it():\n    os._exit(0)\n"})
    argv = ("{python}", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert ask(CommandJudge(name="tests", argv=argv), candidate).verdict.passed
    promised = CommandJudge(name="tests", argv=(*argv, "--junitxml={reports}/junit.xml"), junit="junit.xml")
    assert ask(promised, candidate).verdict.outcome is Outcome.ERROR


def _end(verdict: Verdict) -> tuple[Outcome, float | None]:
    return verdict.outcome, verdict.score
