"""The judge that runs a command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ratchet.judges import CommandJudge, JsonReport
from ratchet.kernel import Misuse, Outcome
from ratchet.sandbox import Bounds, Policy
from tests.judges.conftest import PYTHON, MakeCandidate, ask

PASSING = '<testsuite tests="2"><testcase name="a" time="0.5"/><testcase name="b"/></testsuite>'
FAILING = '<testsuite><testcase name="a"/><testcase classname="t" name="b"><failure/></testcase></testsuite>'
SKIPPED = '<testsuite><testcase name="a"><skipped/></testcase></testsuite>'


def runs(code: str, **known: object) -> CommandJudge:
    return CommandJudge(name="tests", argv=(*PYTHON, "-c", code, "{reports}"), **known)  # type: ignore[arg-type]


def writes(file: str, content: str, code: int = 0) -> str:
    return f"import sys; open(sys.argv[1] + '/{file}', 'w').write({content!r}); sys.exit({code})"


def test_exit_code_0_passes_and_is_measured(make_candidate: MakeCandidate) -> None:
    judged = ask(runs("print('fine')"), make_candidate())
    assert judged.verdict.outcome is Outcome.PASSED
    assert judged.verdict.measurements["wall_ms"] > 0
    [report] = judged.reports
    assert judged.verdict.report == report.sha256
    assert json.loads(report.content)["stdout"] == "fine\n"


def test_any_other_exit_code_fails_and_the_reason_is_the_last_thing_it_said(
    make_candidate: MakeCandidate,
) -> None:
    verdict = ask(runs("import sys; sys.exit('two tests failed')"), make_candidate()).verdict
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason == "it exited with 1: two tests failed"


def test_a_command_sees_the_candidate_and_cannot_change_it(make_candidate: MakeCandidate) -> None:
    candidate = make_candidate({"main.py": "original"})
    judge = runs(
        "text = open('main.py').read(); open('main.py', 'w').write('changed'); assert text == 'original'"
    )
    assert ask(judge, candidate).verdict.passed
    assert (candidate.directory / "main.py").read_text() == "original"


def test_without_writes_the_candidate_is_read_only(make_candidate: MakeCandidate) -> None:
    candidate = make_candidate({"main.py": "original"})
    assert ask(runs("print(open('main.py').read())", writes=False), candidate).verdict.passed
    assert not ask(runs("open('main.py', 'w')", writes=False), candidate).verdict.passed
    assert (candidate.directory / "main.py").read_text() == "original"


def test_the_environment_holds_nothing_of_ours(
    make_candidate: MakeCandidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "secret")
    policy = Policy(environment={"GIVEN": "yes"})
    judged = ask(runs("import os; print(sorted(os.environ))", policy=policy), make_candidate())
    seen = json.loads(judged.reports[0].content)["stdout"]
    assert "SECRET_KEY" not in seen
    assert "GIVEN" in seen


def test_a_command_that_fails_before_its_report_says_why(make_candidate: MakeCandidate) -> None:
    code = "import sys; sys.exit('No module named flask')"
    judged = ask(runs(code, junit="junit.xml"), make_candidate())
    assert judged.verdict.outcome is Outcome.ERROR
    assert judged.verdict.reason.startswith("it exited with 1: No module named flask")


def test_junit_is_counted(make_candidate: MakeCandidate) -> None:
    verdict = ask(runs(writes("junit.xml", PASSING), junit="junit.xml"), make_candidate()).verdict
    assert verdict.passed
    found = {
        name: verdict.measurements[name]
        for name in ("tests", "failures", "errors", "skipped", "duration_seconds")
    }
    assert found == {"tests": 2, "failures": 0, "errors": 0, "skipped": 0, "duration_seconds": 0.5}


@pytest.mark.parametrize(
    ("report", "code", "outcome", "reason"),
    [
        (FAILING, 1, Outcome.FAILED, "t.b"),
        (FAILING, 0, Outcome.FAILED, "its report shows 1 failed tests"),
        ("<testsuites/>", 0, Outcome.FAILED, "no test was run"),
        (SKIPPED, 0, Outcome.FAILED, "no test was run"),
        ("<testsuite", 0, Outcome.ERROR, "is not XML"),
        ("<testsuite", 1, Outcome.ERROR, "is not XML"),
        ("<html></html>", 0, Outcome.ERROR, "'html'"),
        ('<testsuite failures="1"><testcase name="a"/></testsuite>', 0, Outcome.ERROR, "contradicts itself"),
    ],
)
def test_the_exit_code_and_the_report_must_agree(
    make_candidate: MakeCandidate, report: str, code: int, outcome: Outcome, reason: str
) -> None:
    verdict = ask(runs(writes("junit.xml", report, code), junit="junit.xml"), make_candidate()).verdict
    assert verdict.outcome is outcome
    assert reason in verdict.reason


@pytest.mark.parametrize("code", ["pass", "import sys; sys.exit(1)"])
def test_a_promised_report_that_is_absent_is_an_error(make_candidate: MakeCandidate, code: str) -> None:
    verdict = ask(runs(code, junit="junit.xml"), make_candidate()).verdict
    assert verdict.outcome is Outcome.ERROR
    assert "the report junit.xml cannot be read: No such file or directory" in verdict.reason


def test_a_report_that_the_candidate_brought_along_is_not_read(make_candidate: MakeCandidate) -> None:
    candidate = make_candidate({"junit.xml": PASSING, "reports/junit.xml": PASSING})
    assert ask(runs("pass", junit="junit.xml"), candidate).verdict.outcome is Outcome.ERROR


def test_numbers_of_a_json_report_are_taken_and_held_to_their_bounds(make_candidate: MakeCandidate) -> None:
    report = JsonReport("coverage.json", {"coverage": "totals.percent"})
    code = writes("coverage.json", '{"totals": {"percent": 81.5}}')
    candidate = make_candidate()
    assert ask(runs(code, json_report=report, at_least={"coverage": 80}), candidate).verdict.passed
    verdict = ask(runs(code, json_report=report, at_least={"coverage": 90}), candidate).verdict
    assert (verdict.outcome, verdict.measurements["coverage"]) == (Outcome.FAILED, 81.5)
    assert verdict.reason == "coverage is 81.5, below 90"
    assert not ask(runs(code, json_report=report, at_most={"coverage": 50}), candidate).verdict.passed
    assert not ask(runs(code, json_report=report, at_most={"absent": 50}), candidate).verdict.passed


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        '{"totals": {"percent": NaN}}',
        '{"totals": {"percent": 1e999}}',
        '{"totals": {"percent": true}}',
        '{"totals": {"percent": 1, "percent": 99}}',
        '{"totals": 1}',
        "[" * 100_000,
        "1" * 5000,
    ],
    ids=["empty", "cut", "nan", "infinite", "boolean", "twice", "other", "deep", "long"],
)
def test_a_json_report_without_the_promised_number_is_an_error(
    make_candidate: MakeCandidate, content: str
) -> None:
    report = JsonReport("r.json", {"coverage": "totals.percent"})
    verdict = ask(runs(writes("r.json", content), json_report=report), make_candidate()).verdict
    assert verdict.outcome is Outcome.ERROR


def test_a_candidate_that_is_too_slow_fails(make_candidate: MakeCandidate) -> None:
    judge = runs("import time; time.sleep(60)", bounds=Bounds(wall_seconds=0.5))
    verdict = ask(judge, make_candidate()).verdict
    assert verdict.outcome is Outcome.FAILED
    assert verdict.reason.startswith("it did not end in time")


def test_a_judge_whose_attempt_is_out_of_time_says_error(make_candidate: MakeCandidate) -> None:
    judge = runs("import time; time.sleep(60)")
    for left in (0.5, 0.0):
        verdict = ask(judge, make_candidate(deadline_seconds=left)).verdict
        assert verdict.outcome is Outcome.ERROR
        assert "the attempt's time ran out" in verdict.reason


def test_a_command_that_does_not_exist_is_an_error(make_candidate: MakeCandidate) -> None:
    verdict = ask(CommandJudge(name="tests", argv=("no-such-command",)), make_candidate()).verdict
    assert verdict.outcome is Outcome.ERROR
    assert "no-such-command" in verdict.reason


def test_a_command_that_crashes_fails(make_candidate: MakeCandidate) -> None:
    verdict = ask(runs("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), make_candidate()).verdict
    assert verdict.outcome is Outcome.FAILED


def test_cancelling_ends_the_command(make_candidate: MakeCandidate, tmp_path: Path) -> None:
    judge = runs("import time; time.sleep(1000)")

    async def cancelled() -> None:
        task = asyncio.create_task(judge.judge(make_candidate()))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(cancelled())


@pytest.mark.soak
def test_a_directory_too_deep_for_recursion_is_removed(make_candidate: MakeCandidate) -> None:
    deep = "import os\nfor _ in range(1500):\n os.mkdir('d'); os.chdir('d')\nos.chmod('.', 0)"
    assert ask(runs(deep), make_candidate()).verdict.passed


@pytest.mark.parametrize(
    "known",
    [
        {"junit": "/etc/passwd"},
        {"junit": "../junit.xml"},
        {"json_report": JsonReport("a/../../b")},
        {"junit": ""},
    ],
)
def test_a_report_outside_of_its_place_is_misuse(known: dict[str, object]) -> None:
    with pytest.raises(Misuse):
        runs("pass", **known)
    with pytest.raises(Misuse):
        CommandJudge(name="nothing", argv=())


def test_everything_that_decides_is_in_the_hash() -> None:
    plain = runs("pass")
    others = [
        runs("pass "),
        runs("pass", junit="j.xml"),
        runs("pass", json_report=JsonReport("j", {"a": "b"})),
        runs("pass", at_least={"a": 1}),
        runs("pass", at_most={"a": 1}),
        runs("pass", writes=False),
        runs("pass", bounds=Bounds(wall_seconds=1)),
        runs("pass", policy=Policy(network=True)),
    ]
    assert len({plain.hash, *(each.hash for each in others)}) == 9
    assert plain.hash == runs("pass").hash
