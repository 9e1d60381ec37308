"""Whoever plans: engines that answer in text, that touch files, that are missing, die, or are only recordings."""

from __future__ import annotations

import json
import sys

import pytest

from ratchet.engines.registry import EngineContext, open_engine
from ratchet.engines.replay import Recording
from ratchet.kernel import RunStatus
from ratchet.ledger.projects import add_project
from ratchet.ledger.protocols import Protocol
from ratchet.modelserver import answer
from tests.protocols.planning.conftest import NAME, Desk
from tests.protocols.planning.plans import plan, step

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
GOOD = answer(plan())


def agent(source: str, *, edits: bool = False) -> str:
    """Settings of an engine `agent` that is a small program. It is no file: a session sees an empty /tmp."""
    plain = source.replace("{", "{{").replace("}", "}}")
    argv = json.dumps([sys.executable, "-c", plain])
    return f"[engines.command.agent]\nargv = {argv}\nedits_files = {str(edits).lower()}\nnetwork = false\n"


def planned_by(desk: Desk, source: str, *, edits: bool = False) -> Protocol:
    """A plan by a small program."""
    desk.open(more=agent(source, edits=edits), **{"protocols.planner": "agent", "protocols.repairs": 0})
    return desk.plan()


@pytest.mark.soak
def test_json_in_prose_is_found_also_when_its_texts_have_fences(desk: Desk) -> None:
    given = plan(step("01-a.md", content='Run:\n\n```sh\necho "{}"\n```\n'))
    said = f'Here it is, with "{{" in it:\n\n```json\n{json.dumps(given, indent=1)}\n```\nDone.'
    planned = planned_by(desk, f"print({said!r})")
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert "```sh" in desk.git("show", f"{NAME}:.protocols/{NAME}/01-a.md")


@pytest.mark.soak
def test_an_engine_that_knows_no_schema_is_told_it(desk: Desk) -> None:
    source = (
        "import json, sys\nasked = sys.stdin.read()\n"
        f"print(json.dumps({plan()!r}) if '\"step_files\"' in asked else 'nothing was asked')"
    )
    assert planned_by(desk, source).status is RunStatus.PLANNED


@pytest.mark.soak
def test_whatever_an_engine_writes_is_thrown_away(desk: Desk) -> None:
    source = (
        "import json, pathlib\nassert pathlib.Path('README.md').exists()\n"
        "pathlib.Path('README.md').write_text('changed')\npathlib.Path('new.txt').write_text('new')\n"
        f"print(json.dumps({plan()!r}))"
    )
    planned = planned_by(desk, source, edits=True)
    assert planned.status is RunStatus.PLANNED, planned.reason
    changed = desk.git("diff", "--name-only", "main", NAME).splitlines()
    assert all(path.startswith(f".protocols/{NAME}/") for path in changed)
    assert (desk.clone / "README.md").read_text() == "# A project\n"
    assert desk.git("status", "--porcelain") == ""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import sys\nsys.exit('the agent broke')", "the agent broke"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "signal"),
        ("print('VERDICT: PASS')", "no JSON object with step_files"),
        ("print('{\"step_files\": [')", "is broken"),
        ("print('{\"a\":' * 100000)", "is broken: it is nested too deeply"),
        (f"print({json.dumps(json.dumps({**plan(), 'step_files': 'none'}))})", "step_files is 'none'"),
    ],
    ids=["exits", "killed", "no plan", "cut off", "nested", "wrong type"],
)
def test_an_engine_that_dies_or_gives_no_plan_is_a_reason(desk: Desk, source: str, says: str) -> None:
    failed = planned_by(desk, source)
    assert failed.status is RunStatus.BLOCKED
    assert says in (failed.reason or "")
    assert (desk.steps(failed), failed.spec) == ([], None)


@pytest.mark.soak
def test_an_engine_that_does_not_exist_is_a_reason(desk: Desk) -> None:
    desk.open(**{"protocols.planner": "nobody"})
    failed = desk.plan()
    assert failed.status is RunStatus.BLOCKED
    assert "there is no engine 'nobody'" in (failed.reason or "")


@pytest.mark.soak
def test_an_engine_whose_program_is_not_installed_is_a_reason_with_what_to_install(desk: Desk) -> None:
    more = '[engines.command.absent]\nargv = ["no-such-agent"]\ninstall = "npm install -g no-such-agent"\n'
    desk.open(more=more, **{"protocols.planner": "absent"})
    failed = desk.plan()
    assert failed.status is RunStatus.BLOCKED
    assert "npm install -g no-such-agent" in (failed.reason or "")
    assert "after" not in (failed.reason or "").split("failed")[1].split(":")[0]


@pytest.mark.soak
def test_an_engine_that_takes_too_long_is_ended(desk: Desk) -> None:
    more = agent("import time\ntime.sleep(600)")
    desk.open(more=more, **{"protocols.planner": "agent", "protocols.session_seconds": 1})
    failed = desk.plan()
    assert failed.status is RunStatus.BLOCKED
    assert [each.failure for each in desk.sessions(failed)] == ["timeout"]


def replayed(desk: Desk, **more: object) -> Protocol:
    """A plan that is recorded for one project, and played back for another that is just like it."""
    tape = desk.home / "tape.jsonl"
    script = desk.open(GOOD)
    real = open_engine("llm", EngineContext(desk.runtime.settings, desk.home, {}))
    desk.open(engine=Recording(real, tape))
    assert desk.plan().status is RunStatus.PLANNED
    facts = desk.project.facts
    desk.open(**{"protocols.planner": f"replay:{tape}"})
    with desk.runtime.ledger.write(actor="test") as tx:
        desk.project_id = add_project(tx, "twin", git_url=str(desk.remote), base_branch="main", facts=facts)
    protocol = desk.plan(**more)
    assert len(script.requests) == 1
    return protocol


@pytest.mark.soak
def test_a_recorded_plan_is_made_again_in_a_simulation_and_marks_it(desk: Desk) -> None:
    planned = replayed(desk, simulated=True)
    assert planned.status is RunStatus.PLANNED, planned.reason
    assert (planned.simulated, planned.used_recording) == (True, True)
    assert [each.simulated for each in desk.sessions(planned)] == [True]


@pytest.mark.soak
def test_a_recording_plans_nothing_in_a_run_that_is_no_simulation(desk: Desk) -> None:
    refused = replayed(desk)
    assert refused.status is RunStatus.BLOCKED
    assert "no simulation" in (refused.reason or "")
    assert desk.steps(refused) == []
