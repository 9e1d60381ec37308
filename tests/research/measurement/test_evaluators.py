"""What evaluators may answer, and what becomes of those that answer anything else."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.judges import Pinned
from ratchet.judges.evaluator import EvaluatorFailed, read_answer
from ratchet.judges.scratch import Changed
from ratchet.kernel import TrialStatus
from ratchet.research.adapter import Program
from ratchet.sandbox import Bounds, Finished
from tests.research.measurement.conftest import COMMAND, NODE, PYTHON, MakeBench, ended, scored_by

CRASH, INFRA = TrialStatus.CRASH, TrialStatus.INFRA_ERROR


def says(answer: str) -> str:
    return f"def score(asked):\n    return {answer}\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("{'score': float('nan')}", "score returned what is not JSON: Out of range float"),
        ("{'score': float('inf')}", "score returned what is not JSON: Out of range float"),
        ("{'score': 10 ** 200}", "no finite number as 'score'"),
        ("{'score': '1.5'}", "no finite number as 'score': it is '1.5'"),
        ("{'score': True}", "no finite number as 'score': it is True"),
        ("{}", "no finite number as 'score': it is empty"),
        ("{'other': 1}", "no finite number as 'score': it has 'other'"),
        ("None", "NoneType, not an object"),
        ("1.5", "float, not an object"),
        ("{'score': 1, 'measurements': {'a': 'b'}}", "'a' is not a finite number"),
        ("{'score': 1, 'invalid': 'no'}", "contradicts itself"),
        ("{'invalid': 'no', 'status': 'keep'}", "unknown status 'keep'"),
        ("{'invalid': 'no', 'status': 'infra_error'}", "unknown status 'infra_error'"),
        ("{'invalid': 'no', 'status': 3}", "status is int, not a text"),
        ("asked['no such']", "KeyError: 'no such'"),
        ("__import__('os')._exit(0)", "without a JSON result"),
        ("print('x' * 10**7)", "more output than it may"),
        ("bytearray(10**10)", "MemoryError"),
        ("__import__('os').fork()", "PermissionError"),
        ("open('/left', 'w')", "Error"),
    ],
)
def test_an_answer_that_is_no_score_is_a_crash_and_says_so(
    make_bench: MakeBench, answer: str, reason: str
) -> None:
    failed = make_bench(evaluate=says(answer)).fail()
    assert failed.status is CRASH, failed.reason
    assert reason in failed.reason
    assert "evaluator" in failed.reason
    assert failed.score is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("true", "bool, not an object"),
        ("[1.5]", "list, not an object"),
        ('{"score": false}', "no finite number as 'score': it is False"),
        ('{"score": {"score": 1}}', "no finite number as 'score'"),
        ('{"score": [1]}', "no finite number as 'score'"),
        ('{"score": null}', "no finite number as 'score': it is None"),
        ('{"score": 1e999}', "no finite number as 'score'"),
        ('{"score": NaN}', "not a JSON number"),
        ('{"score": 1, "measurements": {"a": true}}', "'a' is not a finite number"),
        ('{"score": 1, "measurements": [1]}', "measurements are not an object"),
        ('{"score": true, "invalid": "no"}', "no finite number as 'score'"),
        ('{"score": 1, "score": 2}', "occurs twice"),
    ],
)
def test_no_other_kind_of_answer_is_taken_for_a_score(answer: str, reason: str) -> None:
    finished = Finished(0, None, None, answer.encode(), b"", 1.0, 1.0, 1, ())
    with pytest.raises(EvaluatorFailed, match=re.escape(reason)):
        read_answer(finished, "score")


def test_nothing_that_starts_programs_of_its_own_reaches_the_evaluator(
    make_bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what the trial leaves for Python or the loader to find, nor what Ratchet's own environment has."""
    forged = "import os; os.write(1, b'{\"score\": 999}'); os._exit(0)"
    recipe = f"""
        import pathlib, sys
        for name in ("sitecustomize.py", "usercustomize.py", "evaluate.py", "json.py"):
            pathlib.Path(sys.argv[2], name).write_text({forged!r})
        pathlib.Path(sys.argv[2], "more.pth").write_text({forged!r})
        pathlib.Path(sys.argv[2], "preload.so").write_bytes(b"not a library")
    """
    evaluate = """
        import json, os, sys
        out = json.load(sys.stdin)["trial"]["out"]
        known = [name for name in os.environ if name.startswith(("LD_", "PYTHONP", "PYTHONS", "PYTHONH"))]
        print(json.dumps({"score": float(len(os.listdir(out))), "measurements": {"known": len(known)}}))
    """
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME"):
        # Only of what is started from here on; the loader of this process has read its own.
        monkeypatch.setenv(name, "" if name == "PYTHONHOME" else str(tmp_path / "nothing"))
    program = scored_by(argv=("{python}", "evaluate.py"))
    measured = make_bench(recipe, evaluate, trial=COMMAND, evaluator=program).measure()
    assert (measured.score, measured.measurements) == (6.0, {"known": 0.0})


@pytest.mark.soak
@pytest.mark.parametrize(
    ("printed", "status", "reason"),
    [
        ("print('{\"score\": NaN}')", CRASH, "NaN is not a JSON number"),
        ('print(\'{"score": 1} {"score": 2}\')', CRASH, "Extra data"),
        ("print('loading...')", CRASH, "is not JSON"),
        ("", CRASH, "is not JSON"),
        ("print('{\"score\": 1}'); raise SystemExit(4)", CRASH, "it exited with 4"),
        ("open('evaluate.py', 'w')", CRASH, "Read-only file system"),
        ("import time; time.sleep(60)", TrialStatus.EVAL_BUDGET_OVERRUN, "it did not end in time"),
        ("raise SystemExit(127)", INFRA, "it exited with 127"),
    ],
)
def test_a_command_that_answers_anything_else(
    make_bench: MakeBench, printed: str, status: TrialStatus, reason: str
) -> None:
    program = scored_by(argv=(*PYTHON, "evaluate.py"), bounds=Bounds(wall_seconds=2))
    failed = make_bench(evaluate=printed, evaluator=program).fail()
    assert failed.status is status, failed.reason
    assert reason in failed.reason


@pytest.mark.soak
@pytest.mark.parametrize("bounds", [Bounds(wall_seconds=1), Bounds(wall_seconds=60, cpu_seconds=1)])
def test_an_evaluator_that_hangs_is_over_its_budget(make_bench: MakeBench, bounds: Bounds) -> None:
    evaluate = "def score(asked):\n    while True: pass\n"
    failed = make_bench(evaluate=evaluate, evaluator=scored_by(bounds=bounds)).fail()
    assert failed.status is TrialStatus.EVAL_BUDGET_OVERRUN
    assert failed.facts["evaluator"]["stopped"] in ("wall", "cpu")


@pytest.mark.parametrize(
    "status", ["disqualified", "size_blocked", "crash", "train_budget_overrun", "eval_budget_overrun"]
)
def test_an_evaluator_may_say_in_which_way_a_candidate_does_not_count(
    make_bench: MakeBench, status: str
) -> None:
    failed = make_bench(evaluate=says(f"{{'invalid': 'why', 'status': '{status}'}}")).fail()
    assert ended(failed) == (TrialStatus(status), "why")


def test_a_candidate_that_does_not_count_is_disqualified(make_bench: MakeBench) -> None:
    failed = make_bench(evaluate=says("{'invalid': 'circles 3 and 4 overlap'}")).fail()
    assert ended(failed) == (TrialStatus.DISQUALIFIED, "circles 3 and 4 overlap")


def test_a_near_miss_keeps_its_score(make_bench: MakeBench) -> None:
    answer = "{'score': 0.9, 'measurements': {'bytes': 70}, 'invalid': '6 bytes too many', 'status': 'size_blocked'}"
    failed = make_bench(evaluate=says(answer)).fail()
    assert ended(failed) == (TrialStatus.SIZE_BLOCKED, "6 bytes too many")
    assert (failed.score, failed.measurements) == (0.9, {"bytes": 70.0})


def test_a_prepare_that_breaks_is_a_crash(make_bench: MakeBench) -> None:
    evaluate = "def prepare(asked):\n    return 1 / 0\n" + says("{'score': 1}")
    failed = make_bench(evaluate=evaluate, evaluator=scored_by(prepare="prepare")).fail()
    assert failed.status is CRASH
    assert "prepare of the evaluator: it exited with 1: ZeroDivisionError" in failed.reason


def test_an_evaluator_that_is_not_there_is_no_fault_of_the_recipe(make_bench: MakeBench) -> None:
    failed = make_bench(evaluator=scored_by(argv=("no-such-program",))).fail()
    assert failed.status is INFRA
    assert "no-such-program" in failed.reason


def test_an_evaluator_that_changed_on_disk_measures_nothing(make_bench: MakeBench) -> None:
    bench = make_bench()
    file = bench.task.root / "evaluator" / "evaluate.py"
    original = file.read_text()
    file.write_text(says("{'score': 999}"))
    failed = bench.fail()
    assert failed.status is INFRA
    assert "was changed" in failed.reason
    file.write_text(original)
    assert bench.measure().score == 1.5


@pytest.mark.soak
def test_an_evaluator_that_is_exchanged_while_it_is_used_measures_nothing(make_bench: MakeBench) -> None:
    recipe = "import time\ndef solve(asked):\n    time.sleep(2)\n    return 1.0\n"
    bench = make_bench(recipe, trial=replace(NODE, bounds=Bounds(wall_seconds=30)))
    file = bench.task.root / "evaluator" / "evaluate.py"
    exchange = threading.Timer(1.0, lambda: file.write_text(says("{'score': 999}")))
    exchange.start()
    failed = bench.fail()
    exchange.join()
    assert failed.status is INFRA


def test_inputs_that_changed_on_disk_measure_nothing(make_bench: MakeBench) -> None:
    bench = make_bench(files={"data/a": "1", "other/a": "2"}, inputs="data", held_out_inputs="other")
    (bench.task.root / "other" / "b").write_text("3")
    assert bench.measure().score == 1.5
    assert bench.fail(held_out=True).status is INFRA


def test_a_settled_directory_is_read_again_when_a_file_was_touched(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("one")
    pinned = Pinned(tmp_path)
    before = file.stat()
    # As far as times go this could be the same file; the kernel's own stamp gives it away.
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(Changed, match="was changed"):
        pinned.check()
    file.write_text("one")
    pinned.check()


def test_a_task_of_programs_that_are_commands_and_functions_alike(make_bench: MakeBench) -> None:
    program = Program(argv=(*PYTHON, "-c", "print(3)"))
    evaluate = "def score(asked):\n    return {'score': float(open(asked['trial']['stdout']).read())}"
    assert make_bench("x = 1\n", evaluate, trial=program).measure().score == 3.0


def test_what_an_evaluator_says_beside_the_score_is_kept_in_bounds(make_bench: MakeBench) -> None:
    answer = (
        "{'score': 1, 'feedback': 'the third case is slow',"
        " 'artifacts': {'worst': {'case': 3}, 'long': 'x' * 9000, **{str(n): 'y' for n in range(50)}}}"
    )
    feedback = make_bench(evaluate=says(answer)).measure().feedback
    assert feedback.text == "the third case is slow"
    assert feedback.artifacts["worst"] == '{"case": 3}'
    assert (len(feedback.artifacts), len(feedback.artifacts["long"])) == (8, 2000)


@pytest.mark.parametrize("said", ["True", "3", "['a']", "{'a': 1}", "'x' * 10**5", "None"])
def test_feedback_of_any_kind_costs_no_score(make_bench: MakeBench, said: str) -> None:
    measured = make_bench(evaluate=says(f"{{'score': 1, 'feedback': {said}, 'artifacts': {said}}}")).measure()
    assert measured.score == 1
    assert len(measured.feedback.text) <= 4000


def test_an_evaluator_explains_also_what_it_does_not_accept(make_bench: MakeBench) -> None:
    failed = make_bench(evaluate=says("{'invalid': 'no', 'feedback': 'two circles overlap'}")).fail()
    assert failed.feedback.text == "two circles overlap"


def test_the_end_of_the_log_comes_with_a_score_and_with_a_crash(make_bench: MakeBench) -> None:
    said = "import sys\n\n\ndef solve(asked):\n    print('step 7 of 9', file=sys.stderr)\n"
    assert make_bench(said + "    return 1.5\n").measure().feedback.log == "step 7 of 9"
    log = make_bench(said + "    raise ValueError(asked['seed'])\n").fail().feedback.log
    assert "step 7 of 9" in log
    assert "ValueError: 0" in log
