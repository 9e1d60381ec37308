"""An engine is asked where files alone do not tell; it only answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import Request
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.engines.replay import Recording
from ratchet.kernel import StepStatus
from ratchet.ledger.runs import list_steps
from ratchet.ledger.tables import sessions
from ratchet.projects.discovery import ProjectFacts, discover_files, discover_project
from ratchet.projects.discovery.survey import RULES, SCHEMA, make_prompt
from ratchet.runtime import Runtime, enter_run
from tests.engines.command_subject import agent
from tests.projects.conftest import MakeRuntime, sqlite_only
from tests.projects.jobs import Died, Mortal, project_of, register, take

ANSWER = {
    "stack": ["Zig"],
    "setup": [["zig", "fetch"]],
    "checks": [
        {"name": "zig-test", "kind": "test", "argv": ["zig", "build", "test"]},
        {"name": "other-build", "kind": "build", "argv": ["false"]},
        {"name": "forged", "kind": "lint", "argv": ["echo", "a\nb"]},
    ],
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository whose Makefile can build but has no tests."""
    made = tmp_path / "clone"
    made.mkdir()
    (made / "Makefile").write_text("build:\n\tzig build\n")
    (made / "build.zig").write_text("const x = 1;\n")
    return made


def saying(tmp_path: Path, text: str, more: str = "") -> dict[str, Any]:
    """Settings by which an engine says `text`, after it has done what `more` says."""
    program = f"import json, os, sys\nprompt = sys.stdin.read()\n{more}\nsys.stdout.write({text!r})\n"
    return {
        "engines__command__mine__argv": [str(agent(tmp_path / "program", program))],
        "projects__discovery": "mine",
    }


def begin(runtime: Runtime, tree: Path) -> tuple[Mortal, int]:
    project_id = register(runtime, local_path=str(tree))
    job = take(runtime)
    assert job is not None
    with job.write() as tx:
        enter_run(tx, job.run_id)
    return job, project_id


def discover(runtime: Runtime, tree: Path) -> tuple[ProjectFacts, Mortal]:
    job, project_id = begin(runtime, tree)
    return asyncio.run(discover_project(job, project_of(runtime, project_id), tree)), job


def count_sessions(runtime: Runtime) -> int:
    with runtime.ledger.read() as tx:
        return len(tx.connection.execute(sessions.select()).all())


def step_status(runtime: Runtime, job: Mortal) -> StepStatus:
    with runtime.ledger.read() as tx:
        [step] = list_steps(tx, job.run_id)
        return step.status


def test_an_answer_fills_what_files_do_not_tell_and_is_marked(
    make_runtime: MakeRuntime, tmp_path: Path, tree: Path
) -> None:
    runtime = make_runtime(**saying(tmp_path, json.dumps(ANSWER)))
    facts, job = discover(runtime, tree)
    assert facts.stack == ("zig",)
    assert facts.setup == (("zig", "fetch"),)
    assert [(check.name, check.source) for check in facts.checks] == [
        ("make-build", "files"),
        ("zig-test", "engine"),
    ]
    assert facts.as_json()["checks"][1]["source"] == "engine"
    assert step_status(runtime, job) is StepStatus.COMPLETED
    assert count_sessions(runtime) == 1


@sqlite_only
def test_nobody_is_asked_where_files_tell_how_to_test(
    make_runtime: MakeRuntime, tmp_path: Path, tree: Path
) -> None:
    (tree / "Makefile").write_text("test:\n\tzig build test\n")
    runtime = make_runtime(**saying(tmp_path, json.dumps(ANSWER)))
    facts, _ = discover(runtime, tree)
    assert [check.name for check in facts.checks] == ["make-test"]
    assert count_sessions(runtime) == 0


@sqlite_only
def test_nobody_is_asked_where_no_engine_is_named(make_runtime: MakeRuntime, tree: Path) -> None:
    facts, _ = discover(make_runtime(), tree)
    assert facts.notes == ()


@sqlite_only
def test_the_engine_reads_the_repository_and_cannot_write_it(
    make_runtime: MakeRuntime, tmp_path: Path, tree: Path
) -> None:
    more = (
        "place = json.JSONDecoder().raw_decode(prompt[prompt.index('The repository is at ') + 21:])[0]\n"
        "assert open(place + '/build.zig').read() == 'const x = 1;\\n'\n"
        "try:\n"
        "    open(place + '/written', 'w')\n"
        "except OSError:\n"
        "    pass\n"
        "open('left-behind', 'w').write('x')\n"
    )
    runtime = make_runtime(**saying(tmp_path, json.dumps(ANSWER), more))
    facts, _ = discover(runtime, tree)
    assert facts.notes == ()
    assert sorted(path.name for path in tree.iterdir()) == ["Makefile", "build.zig"]


@sqlite_only
@pytest.mark.parametrize(
    "text",
    [
        "I do not know.",
        json.dumps({"checks": []}),
        json.dumps(ANSWER | {"checks": [{"name": "x", "kind": "magic", "argv": ["x"]}]}),
        json.dumps(ANSWER | {"checks": [{"name": "x", "kind": "test", "argv": []}]}),
    ],
)
def test_an_answer_that_cannot_be_used_is_a_note_and_nothing_else(
    make_runtime: MakeRuntime, tmp_path: Path, tree: Path, text: str
) -> None:
    runtime = make_runtime(**saying(tmp_path, text))
    facts, job = discover(runtime, tree)
    assert [check.name for check in facts.checks] == ["make-build"]
    assert "the engine mine gave no more: " in facts.notes[0]
    assert step_status(runtime, job) is StepStatus.FAILED


@sqlite_only
def test_an_engine_that_does_not_exist_is_a_note(make_runtime: MakeRuntime, tree: Path) -> None:
    facts, _ = discover(make_runtime(projects__discovery="nobody"), tree)
    assert "there is no engine 'nobody'" in facts.notes[0]


@sqlite_only
def test_an_engine_that_knows_no_schemas_is_not_asked(make_runtime: MakeRuntime, tree: Path) -> None:
    facts, _ = discover(make_runtime(projects__discovery="search"), tree)
    assert "it cannot answer by a schema" in facts.notes[0]


@pytest.mark.soak
@sqlite_only
def test_an_engine_that_takes_too_long_is_ended(
    make_runtime: MakeRuntime, tmp_path: Path, tree: Path
) -> None:
    settings = saying(tmp_path, "", "import time\ntime.sleep(600)")
    facts, _ = discover(make_runtime(**settings, projects__discovery_seconds=1.0), tree)
    assert "gave no more" in facts.notes[0]


@sqlite_only
def test_a_failed_session_is_tried_again_the_next_time(
    make_runtime: MakeRuntime, tmp_path: Path, tree: Path
) -> None:
    settings = saying(tmp_path, "nonsense")
    runtime = make_runtime(**settings)
    job, project_id = begin(runtime, tree)
    facts = asyncio.run(discover_project(job, project_of(runtime, project_id), tree))
    assert facts.notes
    agent(tmp_path / "program", f"import sys\nsys.stdin.read()\nsys.stdout.write({json.dumps(ANSWER)!r})\n")
    again = asyncio.run(discover_project(job, project_of(runtime, project_id), tree))
    assert [check.name for check in again.checks] == ["make-build", "zig-test"]
    assert count_sessions(runtime) == 2


@sqlite_only
@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("write", [1, 2, 3])
def test_after_a_death_there_is_one_recorded_session_and_the_same_answer(
    make_runtime: MakeRuntime, tmp_path: Path, tree: Path, write: int, after_commit: bool
) -> None:
    runtime = make_runtime(**saying(tmp_path, json.dumps(ANSWER)))
    job, project_id = begin(runtime, tree)
    project = project_of(runtime, project_id)
    job.writes_left, job.after_commit = write, after_commit
    with pytest.raises(Died):
        asyncio.run(discover_project(job, project, tree))
    job.writes_left = None
    facts = asyncio.run(discover_project(job, project, tree))
    assert [check.name for check in facts.checks] == ["make-build", "zig-test"]
    assert count_sessions(runtime) == 1


@sqlite_only
def test_a_recording_tells_nothing_in_a_run_that_is_no_simulation(
    make_runtime: MakeRuntime, tmp_path: Path, tree: Path
) -> None:
    runtime = make_runtime(**saying(tmp_path, json.dumps(ANSWER)))
    engine = open_engine("mine", EngineContext(runtime.settings, runtime.home, {}))
    empty = tmp_path / "empty"
    empty.mkdir()
    prompt = make_prompt(tree, discover_files(tree), has_files=True)
    request = Request(prompt, system=RULES, workspace=empty, readable=(tree,), output_schema=SCHEMA)
    asyncio.run(Recording(engine, tmp_path / "tape.jsonl").propose(request))
    replaying = make_runtime(projects__discovery=f"replay:{tmp_path / 'tape.jsonl'}")
    facts, _ = discover(replaying, tree)
    assert [check.name for check in facts.checks] == ["make-build"]
    assert "a recording tells nothing" in facts.notes[0]
