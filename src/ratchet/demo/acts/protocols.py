"""A protocol passes its gates: a planned change of a git repository, whose first try is refused by the tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from ratchet.demo.pictures.tries import Row, Try, draw_tries
from ratchet.demo.recordings import RECORDED, recorded_engine
from ratchet.demo.shown import Command, Shown
from ratchet.demo.stage import ActFailed, Stage
from ratchet.demo.till import make_till, pushed_log
from ratchet.kernel import Outcome
from ratchet.ledger import Attempt, Event
from ratchet.ledger.projects import find_project, get_project
from ratchet.ledger.protocol_steps import get_protocol_step, list_protocol_steps
from ratchet.ledger.protocols import find_protocol
from ratchet.ledger.runs import list_attempts
from ratchet.projects.registering import register_project
from ratchet.protocols.actions import create_protocol, start_protocol

WISH = "Add discounts and receipts to the till, with tests."
NAME = "0001-discounts-and-receipts"
# Of what happens to a step or to the branch: what is told of it.
_TOLD = {
    "step_started": "the author works (a recording)",
    "qa_failed": "refused",
    "step_fix": "goes back to its author with what was wrong",
    "qa_passed": "kept",
}


def act(stage: Stage) -> Shown:
    repository, remote = make_till(stage.place.directory)
    stage.say(f"a git repository with one test, {repository}, and a bare one as its remote")
    project_id = _set_up(stage, str(repository))
    run_id = _begun(stage, project_id)
    stage.say(f"Run {run_id}: {WISH}")
    stage.carried(run_id, lambda event: _tell(stage, event))
    pushed = pushed_log(remote, NAME)
    stage.say(f"the remote has {len(pushed)} new commits on {NAME}")
    return _shown(stage, run_id, repository, pushed)


def _set_up(stage: Stage, repository: str) -> int:
    """The project of that repository, which Ratchet has looked at."""
    name = stage.place.name("till")
    with stage.ledger.write(actor="demo") as tx:
        if find_project(tx, name) is None:
            register_project(tx, stage.runtime, name=name, local_path=repository)
    with stage.ledger.read() as tx:
        project = find_project(tx, name)
    assert project is not None
    assert project.setup_run_id is not None
    stage.carried(project.setup_run_id, lambda _: None)
    with stage.ledger.read() as tx:
        facts = get_project(tx, project.id).facts
    checks = [" ".join(each["argv"]) for each in facts.get("checks") or []]
    stage.say(f"Ratchet found its checks: {', '.join(checks) or 'none'}")
    return project.id


def _begun(stage: Stage, project_id: int) -> int:
    engines = {
        "plan": recorded_engine("planner"),
        "execute": recorded_engine("author"),
        "qa": recorded_engine("reviewer"),
    }
    with stage.ledger.write(actor="demo") as tx:
        there = find_protocol(tx, project_id, NAME)
        if there is not None:
            return there.run_id
        run_id = create_protocol(
            tx,
            stage.runtime,
            project_id,
            NAME,
            description=WISH,
            simulated=True,
            automatic=True,
            template_config={"template": {"engineDefaults": engines}},
        )
        start_protocol(tx, stage.runtime, run_id)
    return run_id


def _tell(stage: Stage, event: Event) -> None:
    if event.type == "planned":
        stage.say(f"planned (a recording): {event.message}")
    elif event.type in _TOLD:
        with stage.ledger.read() as tx:
            name = get_protocol_step(tx, event.step_id or 0).name
        reason = f": {event.message}" if event.type.startswith("qa_") else ""
        stage.say(f"{name} {_TOLD[event.type]}{reason}")


def _shown(stage: Stage, run_id: int, repository: Path, pushed: Sequence[str]) -> Shown:
    with stage.ledger.read() as tx:
        rows = [
            Row(step.name, step.commit or "", tuple(_try(each) for each in list_attempts(tx, step.step_id)))
            for step in list_protocol_steps(tx, run_id)
        ]
    tries = [each for row in rows for each in row.tries]
    refused = [(row.name, each.told) for row in rows for each in row.tries if not each.passed]
    if not refused or len(pushed) < len(rows):
        raise ActFailed(
            f"protocol {run_id} is completed, but {len(refused)} tries were refused and {len(pushed)} commits pushed",
            hint=f"ratchet protocol log {run_id}",
        )
    return Shown(
        headline=f"A change of a git repository was planned in {len(rows)} steps; its gates refused "
        f"{len(refused)} of {len(tries)} tries, and what passed was pushed.",
        facts={
            "steps": str(len(rows)),
            "tries": str(len(tries)),
            "refused by a gate": str(len(refused)),
            "commits pushed": str(len(pushed)),
        },
        real="The repository, its branch, its tests and the gates are real. Each try was made in a workspace of its "
        f"own; the repository's own tests ran in a sandbox and refused {refused[0][0]} at first. What passed is a "
        "commit, and the branch was pushed to a bare repository on this machine; without a forge there is no pull "
        "request.",
        recorded=f"{RECORDED}: the plan, what the author wrote, and what the reviewer said.",
        runs=(run_id,),
        look=(
            Command(f"ratchet protocol show {run_id}", "its steps and what to do next"),
            Command(f"ratchet protocol log {run_id}", "everything that was said"),
            Command(
                f"ratchet step show {run_id}/01 --print report --attempt 1", "why the first try was refused"
            ),
            Command(f"git -C {quote(str(repository))} log --oneline {NAME}", "the branch"),
        ),
        pictures=(draw_tries(rows),),
        quotes={"Why it was refused": refused[0][1], "The branch at the remote": "\n".join(pushed)},
    )


def _try(attempt: Attempt) -> Try:
    return Try(attempt.outcome is Outcome.PASSED, attempt.reason or "")
