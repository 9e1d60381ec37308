"""The second check: the agent's own tests, also where they would rather not be run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ratchet.agents.checks.own_tests import check_tests
from ratchet.config.workflow_settings import Agents
from ratchet.judges.judge import Deadline
from ratchet.kernel import Outcome
from tests.agents.checks.conftest import Check, sections

GREEN = '<testsuite tests="1"><testcase classname="tests" name="test_it" time="0.1"/></testsuite>'
WRITES = f"import os, sys\nopen(sys.argv[1], 'w').write('''{GREEN}''')\n"


def outcome_of(check: Check, agent: Path, tests: str, **settings: Any) -> tuple[Outcome, str]:
    """What the check of these tests says."""
    (agent / "tests.py").write_text(tests)
    checked = check(agent, **settings)
    assert list(sections(checked)) == ["files", "tests"]
    return checked.judged.verdict.outcome, checked.judged.verdict.reason


@pytest.mark.soak
def test_tests_run_in_a_copy_with_the_kit_and_a_loopback_and_without_any_network(
    agent: Path, tmp_path: Path
) -> None:
    (agent / "tests.py").write_text("""
import os, socket, pytest
from ratchet.agentkit import state
from words import greeting_for

def test_the_code_is_there():
    assert greeting_for("Ada") == "hello, Ada"

def test_the_state_is_its_own():
    with state.edit() as known:
        known["greeted"] += 1
    assert state.read()["greeted"] == 1

@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_servers_of_its_own_can_be_reached(anyio_backend):
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()

class TestOthers:
    @pytest.mark.parametrize("address", ["192.0.2.1", "1.1.1.1"])
    def test_other_machines_cannot(self, address):
        with pytest.raises(OSError, match="unreachable"):
            socket.create_connection((address, 80), timeout=5)

    def test_nothing_of_ours_is_in_the_environment(self):
        assert not {name for name in os.environ if name.startswith(("RATCHET_", "SECRET"))} - {"RATCHET_AGENT"}
""")
    names = (
        *("test_the_code_is_there", "test_the_state_is_its_own", "test_servers_of_its_own_can_be_reached"),
        *("TestOthers.test_other_machines_cannot", "TestOthers.test_nothing_of_ours_is_in_the_environment"),
    )
    details = asyncio.run(
        check_tests(agent, names, tmp_path / "place", Agents(), agent="greeter", deadline=Deadline(None))
    )
    assert (details["tests"], details["failures"], details["exit_code"]) == (6, 0, 0)
    assert "network namespace" in details["layers"]
    assert '"greeted": 0' in (agent / "state.json").read_text()


@pytest.mark.soak
def test_a_failing_test_is_named_with_what_it_found(check: Check, agent: Path) -> None:
    tests = "def test_good(): pass\ndef test_bad(): assert 1 + 1 == 3\n"
    outcome, reason = outcome_of(check, agent, tests)
    assert outcome is Outcome.FAILED
    assert reason.startswith("tests: 1 of 2 tests failed, pytest exited with 1")
    assert "FAILED tests.py::test_bad - assert (1 + 1) == 3" in reason


@pytest.mark.soak
@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("", "no test was run (0 found"),
        ("def check_it(): pass\n", "no test was run (0 found"),
        ("import pytest\n@pytest.mark.skip\ndef test_it(): pass\n", "no test was run (1 found, 1 skipped)"),
        (
            "import no_such_module\ndef test_it(): pass\n",
            "ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("import sys\nsys.exit(0)\ndef test_it(): pass\n", "pytest exited with 3"),
        ("import os\ndef test_it(): os._exit(0)\n", "pytest did not come to its end (it exited with 0"),
        ("import os\nos._exit(0)\n", "pytest did not come to its end"),
        (f"{WRITES}os._exit(0)\ndef test_it(): pass\n", "pytest did not come to its end"),
        (
            f"def test_it():\n    exec({WRITES!r}, globals())\n    os._exit(0)\n",
            "pytest did not come to its end",
        ),
        ("import os\ndef test_it(): os.write(1, b'{}'); os.kill(os.getpid(), 11)\n", "ended by SIGSEGV"),
        (
            f"import atexit, os\ndef forge():\n    exec({WRITES!r})\n    os._exit(0)\n"
            "atexit.register(forge)\ndef test_it(): assert False\n",
            "1 of 1 tests failed",
        ),
        (
            "import pytest\ndef test_it(): pass\ndef test_more(): pytest.exit('enough', returncode=0)\n",
            "test_more was not run",
        ),
    ],
    ids=[
        *("empty", "no tests", "all skipped", "import error", "exit at import", "leaves", "leaves at import"),
        *("own report at import", "own report in a test", "crash", "own report at exit", "stops pytest"),
    ],
)
def test_what_is_no_honest_run_of_all_tests_does_not_pass(
    check: Check, agent: Path, tests: str, reason: str
) -> None:
    outcome, told = outcome_of(check, agent, tests)
    assert outcome is Outcome.FAILED
    assert reason in told


FORGER = f"""
import sys, pytest

class Forger:
    def pytest_sessionfinish(self, session):
        session.exitstatus = 0

    def pytest_unconfigure(self):
        open(sys.argv[1], "w").write('''{GREEN}''')

@pytest.fixture(autouse=True)
def forge(request):
    request.config.pluginmanager.register(Forger())

def test_it():
    assert False
"""


def test_a_report_that_was_replaced_while_pytest_ran_does_not_pass(check: Check, agent: Path) -> None:
    outcome, reason = outcome_of(check, agent, FORGER)
    assert outcome is Outcome.FAILED
    assert "1 tests failed, but the report junit.xml shows none of them" in reason


PASSES = {
    "tests do nothing": "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n",
    "failures are passed": (
        "from _pytest.reports import TestReport\nmade = TestReport.__init__\n"
        "def passed(self, *args, **kwargs):\n    made(self, *args, **kwargs)\n    self.outcome = 'passed'\n"
        "TestReport.__init__ = passed\n"
    ),
}


@pytest.mark.parametrize(
    "how", [*list(PASSES)[:1], *(pytest.param(each, marks=pytest.mark.soak) for each in list(PASSES)[1:])]
)
def test_code_that_makes_pytest_pass_whatever_is_tested_does_not_pass(
    how: str, check: Check, agent: Path
) -> None:
    # A server has no pytest.
    changes = f"import sys\nif 'pytest' in sys.modules:\n    exec({PASSES[how]!r})\n"
    (agent / "words.py").write_text(f"{changes}def greeting_for(name):\n    return ''\n")
    outcome, reason = outcome_of(
        check, agent, "from words import greeting_for\ndef test_it(): assert greeting_for('Ada')\n"
    )
    assert outcome is Outcome.FAILED
    assert "pytest passed a test that fails" in reason


def test_a_package_of_the_agent_is_no_plugin_of_pytest(check: Check, agent: Path) -> None:
    """By the name of the one that is loaded for every agent, it could pass the tests that it likes to."""
    (agent / "anyio").mkdir()
    (agent / "anyio" / "__init__.py").touch()
    (agent / "anyio" / "pytest_plugin.py").write_text(
        "def pytest_pyfunc_call(pyfuncitem):\n    return True if pyfuncitem.name == 'test_bad' else None\n"
    )
    outcome, reason = outcome_of(check, agent, "def test_good(): pass\ndef test_bad(): assert False\n")
    assert outcome is Outcome.FAILED
    assert "1 of 2 tests failed" in reason


@pytest.mark.soak
def test_tests_with_fixtures_and_marks_of_their_own_are_not_taken_for_a_change_of_pytest(
    agent: Path, tmp_path: Path
) -> None:
    (agent / "tests.py").write_text("""
import pytest

pytestmark = pytest.mark.anyio

@pytest.fixture(params=["asyncio"])
def anyio_backend(request):
    return request.param

@pytest.fixture(autouse=True)
def each(request):
    yield request.node.name

@pytest.fixture(autouse=True, scope="module", params=[1, 2])
def both(request):
    return request.param

@pytest.mark.parametrize("number", [1, 2])
async def test_numbers(number, both):
    assert number and both

class TestIt:
    def test_it(self): pass

    @pytest.mark.xfail(strict=True)
    def test_not(self): assert False
""")
    names = ("test_numbers", "TestIt.test_it", "TestIt.test_not")
    details = asyncio.run(
        check_tests(agent, names, tmp_path / "place", Agents(), agent="greeter", deadline=Deadline(None))
    )
    assert (details["failures"], details["exit_code"]) == (0, 0)


def test_tests_that_were_left_out_are_missed(check: Check, agent: Path) -> None:
    leaving_out = (
        "class Out:\n    def pytest_runtest_protocol(self, item): return item.name == 'test_b' or None\n"
    )
    tests = (
        f"{leaving_out}def test_a(request): request.config.pluginmanager.register(Out())\n"
        "def test_b(): assert False\n"
    )
    outcome, reason = outcome_of(check, agent, tests)
    assert outcome is Outcome.FAILED
    assert "test_b was not run" in reason


@pytest.mark.soak
def test_settings_of_pytest_in_the_agent_do_not_decide(check: Check, agent: Path) -> None:
    (agent / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    outcome, reason = outcome_of(check, agent, "def test_it(): assert False\n")
    assert (outcome, "1 of 1 tests failed" in reason) == (Outcome.FAILED, True)


@pytest.mark.soak
def test_tests_that_do_not_end_fail_and_all_they_started_is_ended(check: Check, agent: Path) -> None:
    tests = (
        "import subprocess, sys\ndef test_it(): subprocess.run([sys.executable, '-c', 'while True: pass'])\n"
    )
    outcome, reason = outcome_of(check, agent, tests, tests_seconds=3)
    assert outcome is Outcome.FAILED
    assert "it did not end in time; the tests must end by themselves, within 3 s" in reason
