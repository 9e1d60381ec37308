"""What the version before was held to binds the next one, whatever the next one says of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet.kernel import Outcome
from tests.agents.checks.conftest import Check, sections
from tests.agents.specimens import write_agent

GREETS = {"tool": "greet", "arguments": {"name": "Ada"}, "expect": {"contains": "Ada"}}
TESTS = """from words import greeting_for


def test_it_greets_by_name():
    assert greeting_for("Ada") == "hello, Ada"


def test_it_greets_anyone():
    assert greeting_for("Eve").endswith("Eve")
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The version before, with two tests and a canary call."""
    base = write_agent(tmp_path / "base")
    (base / "tests.py").write_text(TESTS)
    return base


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The next version, still the same."""
    agent = write_agent(tmp_path / "staging")
    (agent / "tests.py").write_text(TESTS)
    return agent


def refusal(check: Check, agent: Path, base: Path) -> str:
    checked = check(agent, base=base)
    assert checked.judged.verdict.outcome is Outcome.FAILED
    return checked.judged.verdict.reason


def test_a_wrecked_agent_is_refused(check: Check, agent: Path, base: Path) -> None:
    """The tool does nothing, the canary calls are gone, and the tests are replaced by one that tests nothing."""
    (agent / "words.py").write_text("def greeting_for(name):\n    return ''\n")
    (agent / "canary.json").unlink()
    (agent / "tests.py").write_text("def test_nothing():\n    pass\n")
    checked = check(agent, base=base)
    verdict, found = checked.judged.verdict, sections(checked)
    assert verdict.outcome is Outcome.FAILED
    assert "predecessor's tests: 2 of 2 tests failed" in verdict.reason
    assert "test_it_greets_by_name is gone" in verdict.reason
    assert "predecessor's canary: " in verdict.reason
    assert 'runner: greet({"name": "Ada"}) is gone from canary.json' in verdict.reason
    assert found["predecessor's tests"]["outcome"] == found["predecessor's canary"]["outcome"] == "failed"


@pytest.mark.soak
def test_more_tests_and_calls_are_welcome(check: Check, agent: Path, base: Path) -> None:
    (agent / "tests.py").write_text(f"{TESTS}\n\ndef test_more():\n    assert greeting_for('x') != 'x'\n")
    more = {"tool": "count", "arguments": {}, "expect": {"equals": 1}}
    (agent / "canary.json").write_text(json.dumps([GREETS, more]))
    checked = check(agent, base=base)
    assert checked.judged.verdict.outcome is Outcome.PASSED, checked.judged.verdict.reason
    assert sections(checked)["predecessor's tests"]["outcome"] == "passed"
    # Its calls were among those that the new version made first.
    assert "predecessor's canary" not in sections(checked)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ('== "hello, Ada"', "", "test_it_greets_by_name is rewritten"),
        ("def test_it_greets_anyone", "def check_it_greets_anyone", "test_it_greets_anyone is gone"),
        (
            "def test_it_greets_anyone",
            "import pytest\n\n@pytest.mark.skip\ndef test_it_greets_anyone",
            "test_it_greets_anyone is rewritten",
        ),
    ],
    ids=["asserts less", "is not collected", "is skipped"],
)
def test_a_weakened_test_is_a_finding_though_all_pass(
    old: str, new: str, finding: str, check: Check, agent: Path, base: Path
) -> None:
    (agent / "tests.py").write_text(TESTS.replace(old, new))
    assert finding in refusal(check, agent, base)


CASES = """import json
from pathlib import Path

import pytest
from more import cases

@pytest.mark.parametrize(("name", "greeting"), cases())
def test_it_greets(name, greeting):
    assert __import__("words").greeting_for(name) == greeting
"""


@pytest.mark.soak
@pytest.mark.parametrize("changed", ["cases.json", "more.py"])
def test_what_only_the_tests_use_binds_as_they_do(
    changed: str, check: Check, agent: Path, base: Path
) -> None:
    """Neither the cases in a file beside the tests, nor what reads them, can be made to fit the code."""
    for each in (base, agent):
        (each / "tests.py").write_text(CASES)
        (each / "more.py").write_text(
            "import json\n\ndef cases():\n    return json.load(open('cases.json'))\n"
        )
        (each / "cases.json").write_text('[["Ada", "hello, Ada"], ["Eve", "hello, Eve"]]')
    assert check(agent, base=base).judged.verdict.outcome is Outcome.PASSED
    (agent / "words.py").write_text("def greeting_for(name):\n    return f'moin, {name}'\n")
    fitting = {
        "cases.json": '[["Ada", "moin, Ada"]]',
        "more.py": "def cases():\n    return [('Ada', 'moin, Ada')]\n",
    }
    (agent / changed).write_text(fitting[changed])
    reason = refusal(check, agent, base)
    assert "predecessor's tests: 2 of 2 tests failed" in reason
    assert f"{changed}, which the tests use, is rewritten" in reason


@pytest.mark.soak
def test_code_that_skips_the_tests_of_its_predecessor_is_a_finding(
    check: Check, agent: Path, base: Path
) -> None:
    # Servers have no pytest.
    skips = (
        "def greeting_for(name):\n    if name == 'Eve':\n        import pytest\n        pytest.skip('no')\n"
    )
    (agent / "words.py").write_text(f"{skips}    return f'hello, {{name}}'\n")
    assert "predecessor's tests: 1 of 2 tests were skipped; with the version before, 0" in refusal(
        check, agent, base
    )


@pytest.mark.soak
def test_a_canary_call_that_was_changed_is_made_as_it_was(check: Check, agent: Path, base: Path) -> None:
    (agent / "words.py").write_text("def greeting_for(name):\n    return 'hello, you'\n")
    (agent / "tests.py").write_text("def test_it():\n    pass\n")
    (agent / "canary.json").write_text(json.dumps([{**GREETS, "expect": {"contains": "you"}}]))
    reason = refusal(check, agent, base)
    assert "the answer is not as expected: it does not contain 'Ada'" in reason


def migrating(agent: Path, body: str) -> Path:
    (agent / "migrate.py").write_text(f"def migrate(state):\n    {body}\n")
    (agent / "tests.py").unlink()
    (agent / "canary.json").unlink()
    return agent


LEARNED = {"greeted": 74, "lessons": ["be brief", "be kind"]}


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ("return {'greeted': 0, 'lessons': []}", "state: migrate.py loses /lessons/1, /lessons/0, /greeted"),
        pytest.param(
            "return {**state, 'lessons': state['lessons'] * 2}",
            "state: migrate.py doubles /lessons",
            marks=pytest.mark.soak,
        ),
        pytest.param("\n    while True: pass", "migrate.py failed: stopped: wall", marks=pytest.mark.soak),
    ],
    ids=["empties", "doubles", "hangs"],
)
def test_a_migration_that_loses_or_doubles_the_state_or_hangs_is_refused(
    body: str, finding: str, check: Check, agent: Path, tmp_path: Path
) -> None:
    base = tmp_path / "before"
    base.mkdir()
    (agent / "state.json").write_text(json.dumps(LEARNED))
    checked = check(migrating(agent, body), base=base, state=LEARNED, call_seconds=3)
    assert checked.judged.verdict.outcome is Outcome.FAILED
    assert finding in checked.judged.verdict.reason
