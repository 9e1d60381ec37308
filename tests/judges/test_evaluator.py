"""The program that scores, and the trial before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.judges import EvaluatorTrial, Pinned
from ratchet.kernel import Misuse, Outcome
from ratchet.sandbox import Bounds, Policy
from tests.judges.conftest import PYTHON, MakeCandidate, ask, write_files
from tests.judges.evaluators import READS_STDOUT
from tests.judges.scoring import Scoring

MakeScore = Callable[..., Scoring]


def says(answer: str, then: str = "") -> str:
    """An evaluator that writes `answer` and continues with `then`."""
    return f"import sys\nsys.stdout.write({answer!r})\nsys.stdout.flush()\n{then}"


def test_what_the_evaluator_answers_is_the_score(
    make_candidate: MakeCandidate, make_score: MakeScore
) -> None:
    verdict = ask(make_score(READS_STDOUT), make_candidate({"main.py": "print(42)"})).verdict
    assert (verdict.outcome, verdict.score) == (Outcome.PASSED, 42.0)


def test_the_evaluator_is_told_what_the_trial_used(
    make_candidate: MakeCandidate, make_score: MakeScore
) -> None:
    evaluate = """
        import json, sys
        trial = json.load(sys.stdin)["trial"]
        print(json.dumps({"score": trial["wall_ms"], "measurements": {"peak": trial["peak_bytes"]}}))
    """
    verdict = ask(make_score(evaluate), make_candidate({"main.py": "import time; time.sleep(0.3)"})).verdict
    assert (verdict.score or 0) >= 300
    assert verdict.measurements["peak"] > 1_000_000


def test_without_a_trial_the_evaluator_reads_the_candidate(
    make_candidate: MakeCandidate, make_score: MakeScore
) -> None:
    evaluate = """
        import json, pathlib, sys
        print(json.dumps({"score": len(pathlib.Path(json.load(sys.stdin)["candidate"], "main.py").read_text())}))
    """
    judge = make_score(evaluate, trial=None)
    assert ask(judge, make_candidate({"main.py": "12345"})).verdict.score == 5.0


def test_inputs_are_shown_to_the_trial_and_pinned(
    make_candidate: MakeCandidate, make_score: MakeScore, tmp_path: Path
) -> None:
    inputs = write_files(tmp_path / "inputs", {"numbers.txt": "7"})
    trial = EvaluatorTrial(argv=(*PYTHON, "main.py", "{inputs}"), inputs=Pinned(inputs))
    judge = make_score(READS_STDOUT, trial=trial)
    candidate = make_candidate({"main.py": "import sys; print(open(sys.argv[1] + '/numbers.txt').read())"})
    assert ask(judge, candidate).verdict.score == 7.0
    (inputs / "numbers.txt").write_text("8")
    verdict = ask(judge, candidate).verdict
    assert (verdict.outcome, verdict.score) == (Outcome.ERROR, None)
    assert "was changed" in verdict.reason


def test_a_trial_writes_to_its_copy_when_told_so(
    make_candidate: MakeCandidate, make_score: MakeScore
) -> None:
    candidate = make_candidate({"main.py": "open('cache', 'w'); open('main.py', 'w'); print(3)"})
    reading = make_score(READS_STDOUT)
    assert ask(reading, candidate).verdict.outcome is Outcome.FAILED
    writing = make_score(READS_STDOUT, trial=EvaluatorTrial(argv=(*PYTHON, "main.py"), writes=True))
    assert ask(writing, candidate).verdict.score == 3.0
    assert "open" in (candidate.directory / "main.py").read_text()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "is not JSON"),
        ("0.5", "is float, not an object"),
        ("{}", "no finite number"),
        ('{"score": NaN}', "NaN is not a JSON number"),
        ('{"score": Infinity}', "Infinity is not a JSON number"),
        ('{"score": -Infinity}', "-Infinity is not a JSON number"),
        ('{"score": 1e999}', "no finite number"),
        ('{"score": 1' + "0" * 400 + "}", "no finite number"),
        ('{"score": "0.9"}', "no finite number"),
        ('{"score": true}', "no finite number"),
        ('{"score": null}', "no finite number"),
        ('{"score": [1]}', "no finite number"),
        ('{"score": 1} {"score": 2}', "Extra data"),
        ('{"score": 1}\n0.99', "Extra data"),
        ('{"score": 1, "score": 2}', "occurs twice"),
        ('loading...\n{"score": 1}', "is not JSON"),
        ('{"score": 1, "invalid": "no"}', "contradicts itself"),
        ('{"score": 1, "measurements": {"a": "b"}}', "'a' is not a finite number"),
        ('{"score": 1, "measurements": 3}', "not an object"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_an_answer_that_is_not_one_score_is_an_error(
    make_candidate: MakeCandidate, make_score: MakeScore, answer: str, reason: str
) -> None:
    verdict = ask(make_score(says(answer), trial=None), make_candidate()).verdict
    assert (verdict.outcome, verdict.score) == (Outcome.ERROR, None)
    assert reason in verdict.reason


@pytest.mark.soak
@pytest.mark.parametrize(
    ("then", "reason"),
    [
        ("sys.exit(1)", "it exited with 1"),
        ("raise RuntimeError('late')", "RuntimeError: late"),
        ("import os; os.abort()", "SIGABRT"),
        ("import time; time.sleep(60)", "it did not end in time"),
        ("while True: sys.stderr.write('x' * 65536)", "more output than it may"),
        ("sys.stdout.write(' ' * 5_000_000)", "more output than it may"),
        ("x = bytearray(10**10)", "MemoryError"),
    ],
)
def test_a_score_that_was_printed_before_something_went_wrong_is_an_error(
    make_candidate: MakeCandidate, make_score: MakeScore, then: str, reason: str
) -> None:
    judge = make_score(says('{"score": 1}', then), trial=None)
    judge = replace(judge, evaluator=replace(judge.evaluator, bounds=Bounds(wall_seconds=2)))
    verdict = ask(judge, make_candidate()).verdict
    assert (verdict.outcome, verdict.score) == (Outcome.ERROR, None)
    assert reason in verdict.reason


def test_a_candidate_that_is_disqualified_fails(make_candidate: MakeCandidate, make_score: MakeScore) -> None:
    verdict = ask(make_score(says('{"invalid": "circles overlap"}')), make_candidate()).verdict
    assert (verdict.outcome, verdict.reason) == (Outcome.FAILED, "circles overlap")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(3)", "the trial: it exited with 3"),
        ("while True: pass", "the trial: it did not end in time"),
        ("import os; os.abort()", "SIGABRT"),
        ("while True: print('x' * 65536)", "more output than it may"),
    ],
)
def test_a_trial_that_does_not_end_well_fails_unscored(
    make_candidate: MakeCandidate, make_score: MakeScore, code: str, reason: str
) -> None:
    judge = make_score(
        says('{"score": 1}'), trial=EvaluatorTrial(argv=(*PYTHON, "main.py"), bounds=Bounds(wall_seconds=1))
    )
    verdict = ask(judge, make_candidate({"main.py": code})).verdict
    assert (verdict.outcome, verdict.score) == (Outcome.FAILED, None)
    assert reason in verdict.reason


def test_a_trial_that_cannot_be_run_is_an_error(make_candidate: MakeCandidate, make_score: MakeScore) -> None:
    judge = make_score(says('{"score": 1}'), trial=EvaluatorTrial(argv=("no-such-program",)))
    verdict = ask(judge, make_candidate()).verdict
    assert verdict.outcome is Outcome.ERROR


def test_an_attempt_out_of_time_is_an_error(make_candidate: MakeCandidate, make_score: MakeScore) -> None:
    judge = make_score(READS_STDOUT)
    verdict = ask(
        judge, make_candidate({"main.py": "import time; time.sleep(5)"}, deadline_seconds=0.5)
    ).verdict
    assert (verdict.outcome, verdict.score) == (Outcome.ERROR, None)
    assert "time ran out" in verdict.reason


def test_a_trial_that_would_see_the_evaluator_is_misuse() -> None:
    with pytest.raises(Misuse, match="whole file system"):
        EvaluatorTrial(argv=("true",), policy=Policy(see_system=True))
    with pytest.raises(Misuse, match="whole file system"):
        EvaluatorTrial(argv=("true",), policy=Policy(floor=frozenset()))


def test_everything_that_decides_is_in_the_hash(make_score: MakeScore, tmp_path: Path) -> None:
    plain = make_score(READS_STDOUT)
    elsewhere = write_files(tmp_path / "elsewhere", {"evaluate.py": READS_STDOUT})
    assert replace(plain, evaluator=replace(plain.evaluator, pinned=Pinned(elsewhere))).hash == plain.hash
    others = [
        replace(plain, trial=None),
        replace(plain, evaluator=replace(plain.evaluator, argv=("other",))),
        replace(plain, evaluator=replace(plain.evaluator, bounds=Bounds(wall_seconds=1))),
        make_score(READS_STDOUT, files={"data.txt": "1"}),
        make_score(READS_STDOUT, files={"data.txt": "2"}),
    ]
    assert len({plain.hash, *(each.hash for each in others)}) == 6


def test_a_directory_that_cannot_be_pinned_is_misuse(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(Misuse, match="neither a file nor a directory"):
        Pinned(tmp_path)
    with pytest.raises(Misuse, match="cannot be pinned"):
        Pinned(tmp_path / "absent")
