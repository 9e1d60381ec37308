"""What the version before was held to binds the next one, whatever the next one says of itself."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from ratchet.agents.checks._read_program import parts_of, words_of
from ratchet.agents.checks.own_tests import changed_parts
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


HELPED = """import pytest
from words import greeting_for

GREETING = "hello, Ada"


def check(answer, wanted):
    assert answer == wanted


@pytest.fixture
def name():
    return "Ada"


class TestGreeting:
    wanted = GREETING

    def setup_method(self):
        self.answer = greeting_for("Ada")

    def test_it_greets(self):
        check(self.answer, self.wanted)


def test_it_greets_by_name(name, tmp_path):
    check(greeting_for(name), GREETING)
"""


RUNS = ("tests.py does something else by itself, beside its tests", "")


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("    assert answer == wanted", "    pass", ("check", "is rewritten")),
        ('GREETING = "hello, Ada"', "GREETING = greeting_for('Ada')", ("GREETING", "is rewritten")),
        ('GREETING = "hello, Ada"\n', "\n", ("GREETING", "is gone")),
        ('return "Ada"', 'return "x" and "Ada"', ("name", "is rewritten")),
        ("wanted = GREETING", "wanted = ''", ("TestGreeting.wanted", "is rewritten")),
        ("class TestGreeting:", "class TestGreeting(object):", ("TestGreeting", "is rewritten")),
        (
            "from words import greeting_for",
            "greeting_for = 'hello, {}'.format",
            ("greeting_for", "is rewritten"),
        ),
        (
            "import pytest\n",
            "import pytest\nfrom helping import greeting_for\n",
            ("greeting_for", "is rewritten"),
        ),
        (
            "\n\nclass",
            "\n\n@pytest.fixture\ndef tmp_path():\n    return None\n\n\nclass",
            ("tmp_path", "is something else now"),
        ),
        ("\n\nclass", "\n\n@pytest.fixture(autouse=True)\ndef always():\n    return None\n\n\nclass", RUNS),
        ("\n\nclass", "\n\ndef setup_module():\n    pass\n\n\nclass", RUNS),
        ("\n\nclass", "\n\npytestmark = pytest.mark.usefixtures('name')\n\n\nclass", RUNS),
        ("\n\nclass", "\n\npytest.approx.x = 1\n\n\nclass", RUNS),
        ("import pytest\n", "import pytest\nfrom helping import *\n", RUNS),
        ("\n\nclass", "\n\nif __name__ != '__main__':\n    pytest.approx.x = 1\n\n\nclass", RUNS),
        # What is only more is welcome.
        (
            "from words import greeting_for",
            "import json\nfrom words import greeting_for, GREETING as HELLO",
            None,
        ),
        ("\n\nclass", "\n\nMORE = [1, 2]\n\n\ndef more():\n    return MORE\n\n\nclass", None),
        ("\n\nclass", "\n\n@pytest.fixture\ndef more():\n    return 1\n\n\nclass", None),
        ("import pytest\n", '"""What it must do."""\n\nimport pytest\n', None),
        (
            "    check(greeting_for(name), GREETING)\n",
            "    pass\n\n\nif __name__ == '__main__':\n    1 / 0\n",
            None,
        ),
        ("\n\nclass", "\n\nclass TestMore:\n    def test_it(self):\n        pass\n\n\nclass", None),
    ],
)
def test_what_the_tests_work_with_binds_as_they_do(old: str, new: str, finding: str | None) -> None:
    """All pass, and nothing of the code has changed, but the change after this one could break it."""
    assert HELPED.count(old) == 1
    before, after = ast.parse(HELPED), ast.parse(HELPED.replace(old, new))
    found = changed_parts(parts_of(before), words_of(before), parts_of(after))
    assert [each.partition(" in tests.py ")[::2] for each in found] == ([] if finding is None else [finding])


@pytest.mark.soak
def test_a_helper_that_checks_nothing_any_more_is_a_finding(check: Check, agent: Path, base: Path) -> None:
    (base / "tests.py").write_text(HELPED)
    (agent / "tests.py").write_text(HELPED.replace("assert answer == wanted", "pass"))
    assert "predecessor's tests: check in tests.py is rewritten" in refusal(check, agent, base)


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
