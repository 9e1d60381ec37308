"""The first check: which files there are, and whether each is what it should be."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.agents.checks._read_program import (
    FileProblem,
    check_state,
    functions_of,
    parsed,
    used_by,
)
from ratchet.agents.checks.files import MAX_BYTES, MAX_FILES, take_snapshot
from ratchet.agents.checks.version import check_form
from ratchet.agents.contract import REQUIRED
from ratchet.config.workflow_settings import Agents
from ratchet.judges.judge import Deadline
from ratchet.kernel import Outcome
from tests.agents.checks.conftest import Check, sections


def reason_of(check: Check, directory: Path, base: Path | None = None) -> str:
    """Why a directory does not pass the check of its files."""
    checked = check(directory, base=base)
    assert checked.judged.verdict.outcome is Outcome.FAILED, checked.judged.verdict.reason
    assert list(sections(checked)) == ["files"]
    assert checked.tools == checked.surface.offers == ()
    return checked.judged.verdict.reason


@pytest.mark.parametrize("name", [*REQUIRED, "state.json"])
def test_a_file_of_the_contract_may_not_be_missing(check: Check, agent: Path, name: str) -> None:
    (agent / name).unlink()
    assert reason_of(check, agent).startswith(f"files: {name} is missing")


def test_a_file_of_the_contract_must_be_a_file(check: Check, agent: Path) -> None:
    (agent / "runner.py").unlink()
    (agent / "runner.py").mkdir()
    assert "runner.py is missing" in reason_of(check, agent)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda path: path.symlink_to("/etc/passwd"),
            "extra is a link to /etc/passwd; put the file itself there",
        ),
        (lambda path: path.symlink_to("../../secret"), "extra is a link to ../../secret"),
        (lambda path: path.symlink_to("runner.py"), "extra is a link to runner.py"),
        (lambda path: path.hardlink_to(path.parent / "words.py"), "2 names (hard links)"),
        (lambda path: (path.write_text("#!/bin/sh\n"), path.chmod(0o4755)), "setuid"),
        (lambda path: (path.write_text("#!/bin/sh\n"), path.chmod(0o2755)), "setgid"),
        (os.mkfifo, "extra is neither a file nor a directory"),
        (lambda path: (path / ".git").mkdir(parents=True), "extra/.git would be a repository"),
        (lambda path: (path.parent / "a\nb").write_text(""), "cannot be printed"),
        (lambda path: (path.parent / os.fsdecode(b"\xff")).write_text(""), "cannot be printed"),
        (lambda path: (path / "/".join("d" * 20)).mkdir(parents=True), "directories deep"),
    ],
    ids=["out", "relative", "inside", "hard", "setuid", "setgid", "fifo", "git", "newline", "bytes", "deep"],
)
def test_what_is_no_plain_file_is_refused(
    check: Check, agent: Path, make: Callable[[Path], object], reason: str
) -> None:
    make(agent / "extra")
    assert reason in reason_of(check, agent)


def test_a_socket_is_refused(check: Check, agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(agent)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("extra")
        assert "extra is neither a file nor a directory" in reason_of(check, agent)


@pytest.mark.parametrize("name", ["logs", "state.lock", "__pycache__", ".git"])
def test_a_link_where_a_running_agent_writes_is_refused(
    check: Check, agent: Path, tmp_path: Path, name: str
) -> None:
    (agent / name).symlink_to(tmp_path)
    assert f"{name} is a link" in reason_of(check, agent)


@pytest.mark.soak
def test_too_many_files_are_refused(check: Check, agent: Path) -> None:
    for number in range(MAX_FILES):
        (agent / f"{number}.txt").touch()
    assert f"more than {MAX_FILES} files" in reason_of(check, agent)


def test_too_many_bytes_are_refused(check: Check, agent: Path) -> None:
    with (agent / "model.bin").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert f"more than {MAX_BYTES} bytes" in reason_of(check, agent)


def test_what_a_running_agent_writes_is_not_taken_along_but_its_state_is(agent: Path, tmp_path: Path) -> None:
    for name in (".git", "logs", "__pycache__", "helpers"):
        (agent / name).mkdir()
        (agent / name / "inside").write_text("x")
    (agent / "state.history.jsonl").write_text("{}\n")
    snapshot = take_snapshot(agent, tmp_path / "snapshot")
    code = {path.name for path in agent.iterdir() if path.is_file()} - {"state.history.jsonl"}
    assert snapshot.files == {*code, "helpers/inside"}
    assert "state.json" in snapshot.files


def test_a_directory_that_is_not_there_is_refused(check: Check, tmp_path: Path) -> None:
    assert "cannot be read" in reason_of(check, tmp_path / "nowhere")


def test_every_python_file_must_parse(check: Check, agent: Path) -> None:
    (agent / "helpers").mkdir()
    (agent / "helpers" / "more.py").write_text("x = 1\nreturn x\n")
    (agent / "runner.py").write_text("x = 1\n\ndef greet(:\n")
    reason = reason_of(check, agent)
    assert "helpers/more.py, line 2: 'return' outside function" in reason
    assert "runner.py, line 3: invalid syntax" in reason


def test_the_functions_of_a_file_are_those_that_pytest_would_look_at(tmp_path: Path) -> None:
    (tmp_path / "tests.py").write_text(
        "import pytest\n@pytest.fixture\ndef test_client(): pass\n"
        "@pytest.fixture(scope='module')\nasync def test_server(): pass\n"
        "@pytest.mark.slow\nasync def test_a(): pass\nclass TestB:\n    def test_c(self):\n        def test_d(): pass\n"
    )
    assert list(functions_of(parsed(str(tmp_path / "tests.py")))) == ["test_a", "TestB.test_c"]


def test_a_file_uses_what_it_imports_or_names(tmp_path: Path) -> None:
    code = "from a import b\nimport c.d as e\nopen('./data/one.json')\nopen(f'cases/{e}.json')\nopen('far.txt')\n"
    (tmp_path / "tests.py").write_text(code)
    used = ["a.py", "c/__init__.py", "c/d.py", "cases/two.json", "data/one.json", "texts/far.txt"]
    among = sorted([*used, "b.py", "data/two.json", "runner.py", "x/a.py"])
    assert used_by(parsed(str(tmp_path / "tests.py")), among) == used


def test_code_that_is_too_deep_to_parse_does_no_harm(check: Check, agent: Path) -> None:
    (agent / "words.py").write_text("-" * 500_000 + "1")
    reason_of(check, agent)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "not JSON"),
        ('["0.0.0"]', 'the one field "version"'),
        ('{"version": "0.0.0", "name": "x"}', 'the one field "version"'),
        ('{"version": 1}', "says version '1'"),
        ('{"version": "1.0"}', "says version '1.0'"),
        ('{"version": "01.0.0"}', "three numbers"),
        ('{"version": "1.0.0-rc.1"}', "three numbers"),
        ('{"version": "1.0.0\\n"}', "three numbers"),
        ('{"version": "1.0.0", "version": "2.0.0"}', "twice"),
    ],
)
def test_metadata_holds_one_version(check: Check, agent: Path, content: str, reason: str) -> None:
    (agent / "metadata.json").write_text(content)
    assert reason in reason_of(check, agent)


def test_the_state_must_fit_its_schema(check: Check, agent: Path) -> None:
    (agent / "state.json").write_text('{"greeted": -1, "lessons": []}')
    reason = reason_of(check, agent)
    assert (
        "state.json: state.greeted is refused by state_schema.json: -1 is less than the minimum of 0"
        in reason
    )


STATE = '{"greeted": 0}'
SCHEMA = '{"type": "object"}'


@pytest.mark.parametrize(
    ("schema", "state", "reason"),
    [
        ("{", STATE, "state_schema.json is not JSON"),
        ("[]", STATE, "the schema is no object"),
        ('{"type": "objekt"}', STATE, "no JSON Schema"),
        ('{"type": "object", "type": "object"}', STATE, "twice"),
        ("{}", STATE, "must describe an object"),
        ('{"$ref": "https://example.com/other.json"}', STATE, "cannot be followed"),
        ('{"properties": {"greeted": {"type": "string"}}}', STATE, "state.greeted"),
        (SCHEMA, "", "state.json is not JSON"),
        (SCHEMA, "[]", "state.json"),
        (SCHEMA, '{"greeted": NaN}', "NaN is not a JSON number"),
        (SCHEMA, '{"greeted": 0, "greeted": 1}', "twice"),
        (SCHEMA, '{"greeted": "\\ud800"}', "half a character"),
        (SCHEMA, "[" * 100_000, "state.json is not JSON"),
    ],
)
def test_what_is_no_schema_of_an_object_and_no_such_object_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: str, state: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state_schema.json").write_text(schema)
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(FileProblem) as raised:
        check_state("state_schema.json", "state.json")
    assert reason in str(raised.value)


def test_a_state_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state_schema.json").write_text(SCHEMA)
    os.mkfifo(tmp_path / "state.json")
    with pytest.raises(FileProblem, match="not a plain file"):
        check_state(str(tmp_path / "state_schema.json"), str(tmp_path / "state.json"))


def test_an_empty_readme_is_refused(check: Check, agent: Path) -> None:
    (agent / "README.md").write_text(" \n")
    assert "README.md is empty" in reason_of(check, agent)


def test_a_change_may_not_delete_the_tests(check: Check, agent: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "tests.py").write_text("def test_it(): pass\n")
    (agent / "tests.py").unlink()
    assert "a change may not delete the tests" in reason_of(check, agent, base=base)


def test_what_would_change_how_tests_are_run_is_refused(check: Check, agent: Path) -> None:
    (agent / "conftest.py").write_text("def pytest_collection_modifyitems(items): items.clear()\n")
    assert "conftest.py is not read" in reason_of(check, agent)


def test_a_migration_has_its_function(check: Check, agent: Path) -> None:
    (agent / "migrate.py").write_text("def move(state):\n    return state\n")
    assert "migrate.py defines no function migrate(state)" in reason_of(check, agent)


NEW_SCHEMA = {"type": "object", "properties": {"names": {"type": "array"}}, "required": ["names"]}


def test_a_state_in_the_old_form_is_migrated_in_the_copy(agent: Path, tmp_path: Path) -> None:
    (agent / "state_schema.json").write_text(json.dumps(NEW_SCHEMA))
    (agent / "migrate.py").write_text("def migrate(state):\n    return {'names': [], **state}\n")
    snapshot = take_snapshot(agent, tmp_path / "snapshot")
    asyncio.run(check_form(snapshot, None, Agents(), deadline=Deadline(None)))
    assert json.loads(snapshot.read("state.json")) == {"names": [], "greeted": 0, "lessons": []}
    assert "names" not in (agent / "state.json").read_text()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "def migrate(state):\n    return {**state, 'names': 1}\n",
            "after migrate.py, state.json: state.names is",
        ),
        ("def migrate(state):\n    return state['names']\n", "migrate.py failed: KeyError"),
    ],
)
def test_a_migration_that_does_not_lead_to_the_new_form_is_refused(
    check: Check, agent: Path, source: str, reason: str
) -> None:
    (agent / "state_schema.json").write_text(json.dumps(NEW_SCHEMA))
    (agent / "migrate.py").write_text(source)
    assert reason in reason_of(check, agent)


def test_a_migration_of_the_version_before_is_not_made_again(
    check: Check, agent: Path, tmp_path: Path
) -> None:
    (agent / "state_schema.json").write_text(json.dumps(NEW_SCHEMA))
    base = tmp_path / "base"
    for directory in (agent, base):
        directory.mkdir(exist_ok=True)
        (directory / "migrate.py").write_text("def migrate(state):\n    return {'names': [], **state}\n")
    assert "'names' is a required property" in reason_of(check, agent, base=base)


def test_the_canary_calls_are_well_formed(check: Check, agent: Path) -> None:
    (agent / "canary.json").write_text(json.dumps([{"tool": "greet", "arguments": []}]))
    assert 'call 1 of canary.json needs "arguments"' in reason_of(check, agent)
