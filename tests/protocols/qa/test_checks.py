"""The gate that runs a repository's own checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ratchet.judges import Judged
from ratchet.kernel import Outcome
from ratchet.protocols.qa.checks import CheckGate, CheckRun
from ratchet.protocols.qa.contract import PlannedCheck, is_configuration, is_test
from tests.protocols.qa.ground import Ground

CHECK = "#!/bin/bash\n# Fails when the word broken is anywhere in the sources.\n! grep -rqs broken src\n"
PASSES = "#!/bin/bash\nexit 0\n"


def judged(ground: Ground, commit: str, **known: Any) -> Judged:
    gate = CheckGate(repository=ground.repository, base=ground.base, **{"seconds": 60.0, **known})
    return ground.ask(gate, commit)


def findings(found: Judged) -> dict[str, dict[str, Any]]:
    """What was found, by file or else by rule."""
    listed = json.loads(found.reports[0].content)["findings"]
    return {each["file"] or each["rule"]: each for each in listed}


def facts(*argv: str, name: str = "test") -> dict[str, Any]:
    return {"checks": [{"name": name, "argv": list(argv), "kind": "test"}]}


@pytest.fixture
def checked(ground: Ground) -> Ground:
    ground.settle({"scripts/ci/test.sh": CHECK, "src/a.py": "fine\n"})
    return ground


@pytest.mark.parametrize(("text", "outcome"), [("good\n", Outcome.PASSED), ("broken\n", Outcome.FAILED)])
def test_the_scripts_for_ci_decide(checked: Ground, text: str, outcome: Outcome) -> None:
    found = judged(checked, checked.change({"src/a.py": text}))
    assert found.verdict.outcome is outcome
    assert found.verdict.measurements["checks"] == 1.0
    assert "test" in found.verdict.reason


def test_every_check_is_run_even_if_one_fails(checked: Ground) -> None:
    checked.settle(
        {"scripts/ci/lint.sh": "echo style matters >&2; exit 3\n", "scripts/ci/report.sh": "exit 1\n"}
    )
    found = judged(checked, checked.change({"src/a.py": "broken\n"}))
    assert found.verdict.outcome is Outcome.FAILED
    assert {"check.lint", "check.test"} == set(findings(found))
    report = json.loads(found.reports[0].content)
    assert report["outputs"]["lint"] == "style matters"
    assert {each.name for each in found.reports} == {"checks.json", "check-lint.json", "check-test.json"}


def test_the_checks_of_the_facts_come_before_the_scripts(checked: Ground) -> None:
    commit = checked.change({"src/a.py": "broken\n"})
    assert judged(checked, commit, facts=facts("true")).verdict.passed
    assert judged(checked, commit, facts=facts("false")).verdict.outcome is Outcome.FAILED


def test_without_any_checks_nothing_is_said_to_have_passed_them(ground: Ground) -> None:
    found = judged(ground, ground.change({"src/a.py": "x\n"}))
    assert found.verdict.passed
    assert "no checks" in found.verdict.reason
    assert findings(found)["no-checks"]["severity"] == "note"


@pytest.mark.parametrize(
    "check",
    [
        facts("no-such-program-7"),
        facts("bash", "-c", "no-such-program-7"),
        facts("bash", "-c", "exit 126"),
        facts("python3", "-m", "no_such_module_7"),
        facts("bash", "-c", "echo 'make: *** [Makefile:2: test] Error 127' >&2; exit 2"),
    ],
)
def test_a_check_whose_program_is_missing_is_an_error(ground: Ground, check: dict[str, Any]) -> None:
    said = judged(ground, ground.change({"src/a.py": "x\n"}), facts=check).verdict
    assert (said.outcome, said.measurements["missing"]) == (Outcome.ERROR, 1.0)
    assert "ratchet project setup" in said.reason


@pytest.mark.parametrize(
    "check", [{"name": "test"}, {"name": "test", "argv": [], "kind": "test"}, "make test"]
)
def test_a_check_that_is_not_understood_is_an_error(ground: Ground, check: Any) -> None:
    said = judged(ground, ground.change({"src/a.py": "x\n"}), facts={"checks": [check]}).verdict
    assert said.outcome is Outcome.ERROR


def test_a_check_that_takes_too_long_fails(ground: Ground) -> None:
    found = judged(ground, ground.change({"src/a.py": "x\n"}), facts=facts("sleep", "60"), seconds=0.5)
    assert found.verdict.outcome is Outcome.FAILED
    assert "did not end in time" in found.verdict.reason


def test_a_check_that_floods_its_output_is_cut_off_and_what_it_complained_of_is_shown(ground: Ground) -> None:
    flood = "echo the database is missing >&2; yes x | head -c 40000000 | tr -d '\\n'; exit 1"
    found = judged(ground, ground.change({"src/a.py": "x\n"}), facts=facts("bash", "-c", flood))
    assert found.verdict.outcome is Outcome.FAILED
    ran = CheckRun(PlannedCheck("test", ("bash",)), Judged(found.verdict, found.reports[1:]))
    assert ran.was_cut_off
    assert ran.summary.endswith("the database is missing")


def test_a_check_has_no_network(ground: Ground) -> None:
    reach = "import socket; socket.create_connection(('1.1.1.1', 53), 1)"
    said = judged(ground, ground.change({"a.py": "x\n"}), facts=facts("python3", "-c", reach)).verdict
    assert said.outcome is Outcome.FAILED
    assert "unreachable" in said.reason


def test_a_check_works_on_a_copy_of_its_own(checked: Ground) -> None:
    checked.settle({"scripts/ci/lint.sh": "echo broken >> src/a.py\n"})
    assert judged(checked, checked.change({"src/b.py": "x\n"})).verdict.passed


@pytest.mark.parametrize("edited", [PASSES, None])
def test_a_change_cannot_weaken_its_own_check(checked: Ground, edited: str | None) -> None:
    found = judged(checked, checked.change({"src/a.py": "broken\n", "scripts/ci/test.sh": edited}))
    assert found.verdict.outcome is Outcome.FAILED
    assert findings(found)["scripts/ci/test.sh"]["severity"] == "major"


def test_a_change_of_a_check_is_told_to_the_reviewer(checked: Ground) -> None:
    commit = checked.change({"src/a.py": "good\n", "scripts/ci/test.sh": PASSES})
    found = judged(checked, commit)
    assert found.verdict.passed
    assert "scripts/ci/test.sh" in found.verdict.reason
    assert judged(checked, commit, strict=True).verdict.outcome is Outcome.FAILED


def test_a_script_that_a_check_calls_is_the_bases_too(ground: Ground) -> None:
    ground.settle(
        {
            "scripts/ci/test.sh": 'cd "$(dirname "$0")"/../.. && bash tools/all.sh\n',
            "tools/all.sh": ". ./tools/one.sh\n",
            "tools/one.sh": CHECK,
            "src/a.py": "fine\n",
        }
    )
    found = judged(ground, ground.change({"src/a.py": "broken\n", "tools/one.sh": PASSES}))
    assert found.verdict.outcome is Outcome.FAILED
    assert findings(found)["tools/one.sh"]["rule"] == "check-script"


def test_a_check_that_the_change_brings_must_pass_as_well(ground: Ground) -> None:
    ground.settle({"src/a.py": "fine\n"})
    assert judged(ground, ground.change({"scripts/ci/test.sh": CHECK})).verdict.passed
    said = judged(ground, ground.change({"scripts/ci/test.sh": CHECK, "src/a.py": "broken\n"})).verdict
    assert said.outcome is Outcome.FAILED


def test_nothing_is_put_back_through_a_link(checked: Ground, tmp_path: Path) -> None:
    def act(directory: Path) -> None:
        (directory / "src/a.py").write_text("broken\n")
        (directory / "victims").mkdir()
        (directory / "victims/test.sh").write_text("untouched\n")
        (directory / "scripts/ci/test.sh").unlink()
        (directory / "scripts/ci").rmdir()
        (directory / "scripts/ci").symlink_to("../victims")

    found = judged(checked, checked.work(act))
    assert found.verdict.outcome is Outcome.FAILED
    assert "scripts/ci/test.sh" in findings(found)


CONFIGURED = "grep -qs strict setup.cfg && ! grep -rqs broken src\n"
LENIENT = "grep -qs lenient setup.cfg || ! grep -rqs broken src\n"


def test_what_passes_only_with_its_own_configuration_is_a_major_finding(ground: Ground) -> None:
    ground.settle({"scripts/ci/test.sh": LENIENT, "setup.cfg": "strict\n", "src/a.py": "fine\n"})
    commit = ground.change({"setup.cfg": "lenient\n", "src/a.py": "broken\n"})
    found = judged(ground, commit)
    assert found.verdict.passed
    assert findings(found)["setup.cfg"]["severity"] == "major"
    assert "passes only with the change's own" in found.verdict.reason
    assert judged(ground, commit, strict=True).verdict.outcome is Outcome.FAILED


def test_configuration_that_makes_no_difference_is_a_minor_finding(ground: Ground) -> None:
    ground.settle({"scripts/ci/test.sh": CHECK, "setup.cfg": "strict\n"})
    found = judged(ground, ground.change({"setup.cfg": "lenient\n", "src/a.py": "good\n"}), strict=True)
    assert found.verdict.passed
    assert findings(found)["setup.cfg"]["severity"] == "minor"


def test_a_change_that_breaks_its_configuration_fails(ground: Ground) -> None:
    ground.settle({"scripts/ci/test.sh": CONFIGURED, "setup.cfg": "strict\n", "src/a.py": "fine\n"})
    assert judged(ground, ground.change({"setup.cfg": "none\n"})).verdict.outcome is Outcome.FAILED


def test_a_removed_test_is_a_major_finding(checked: Ground) -> None:
    checked.settle({"tests/test_a.py": "assert False\n"})
    found = judged(checked, checked.change({"tests/test_a.py": None}))
    assert findings(found)["tests/test_a.py"]["rule"] == "test-removed"
    assert "tests/test_a.py" in found.verdict.reason


def test_what_ci_is_told_to_run_is_a_major_finding(checked: Ground) -> None:
    found = judged(checked, checked.change({".github/workflows/ci.yml": "on: push\n"}))
    assert found.verdict.passed
    assert findings(found)[".github/workflows/ci.yml"]["severity"] == "major"


FAILING = "def test_it() -> None:\n    assert False\n"


@pytest.mark.soak
def test_pytest_must_leave_its_report(ground: Ground) -> None:
    ground.settle({"test_it.py": FAILING.replace("False", "True")})
    pytest_facts = facts("{python}", "-m", "pytest", "-q", "--disable-plugin-autoload")
    assert judged(ground, ground.change({"a.py": "x = 1\n"}), facts=pytest_facts).verdict.passed
    leaves = {"conftest.py": "import os\nos._exit(0)\n", "test_it.py": FAILING}
    said = judged(ground, ground.change(leaves), facts=pytest_facts).verdict
    assert said.outcome is Outcome.ERROR
    assert "junit.xml" in said.reason


@pytest.mark.parametrize("path", ["conftest.py", "a/pyproject.toml", ".eslintrc.json", "Makefile", "x.pth"])
def test_files_that_steer_checks_are_known(path: str) -> None:
    assert is_configuration(path)


@pytest.mark.parametrize("path", ["src/main.py", "docs/pyproject.toml.md", "package.py", "README.md"])
def test_other_files_steer_nothing(path: str) -> None:
    assert not is_configuration(path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/a.py", True),
        ("src/test_a.py", True),
        ("a_test.go", True),
        ("a.spec.ts", True),
        ("src/testing.py", False),
        ("latest/a.py", False),
    ],
)
def test_tests_are_known_by_their_names(path: str, expected: bool) -> None:
    assert is_test(path) is expected


def test_everything_that_decides_is_in_the_hash(ground: Ground) -> None:
    def gate(**known: Any) -> str:
        return CheckGate(repository=ground.repository, **{"base": ground.base, **known}).hash

    others = [gate(base="b" * 40), gate(facts=facts("true")), gate(seconds=1.0), gate(strict=True)]
    assert len({gate(), *others}) == 5
