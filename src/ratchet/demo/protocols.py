"""A protocol passes its gates: a planned change of a git repository, whose first try is refused by the tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ratchet.demo.stage import RECORDED, ActFailed, DemoCommand, DemoStage, Shown, recorded_engine
from ratchet.kernel import Outcome, RatchetError, decoded
from ratchet.ledger import Attempt, Event
from ratchet.ledger.projects import find_project, get_project
from ratchet.ledger.protocols import find_protocol, get_protocol_step, list_protocol_steps
from ratchet.ledger.runs import list_attempts
from ratchet.programs import run_program
from ratchet.projects.registration import register_project
from ratchet.protocols.actions import create_protocol, start_protocol
from ratchet.research.views.markup import Markup, joined, tag
from ratchet.research.views.text import one_line
from ratchet.workspaces import find_git

_FILES = {
    "README.md": "# Till\n\nAdds up prices.\n",
    "prices.py": "def total(prices):\n    return sum(prices)\n",
    "tests/test_prices.py": """import unittest

import prices


class Total(unittest.TestCase):
    def test_prices_are_added_up(self):
        self.assertEqual(prices.total([2, 3]), 5)
""",
}
# Nobody's own settings are read: whoever tries the demo may have no identity, or hooks that want to be asked.
_SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
_IDENTITY = ("-c", "user.name=Ratchet demo", "-c", "user.email=demo@localhost")


def make_till(directory: Path) -> tuple[Path, Path]:
    """The repository and its remote, in `directory`: whole, or made again if an earlier process was cut off in it."""
    repository, remote = directory / "till", directory / "till.git"
    if not repository.exists():
        unfinished = directory / "till.unfinished"
        for each in (unfinished, remote):
            shutil.rmtree(each, ignore_errors=True)
        for name, content in _FILES.items():
            path = unfinished / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        _git(unfinished, "init", "-q", "-b", "main")
        _git(unfinished, "add", ".")
        _git(unfinished, *_IDENTITY, "commit", "-qm", "A till")
        _git(directory, "clone", "-q", "--bare", str(unfinished), str(remote))
        _git(unfinished, "remote", "add", "origin", str(remote))
        unfinished.rename(repository)
    return repository, remote


def pushed_log(remote: Path, branch: str) -> list[str]:
    """What the remote has on a branch above main, newest first: a short commit and a subject in each line."""
    return _git(remote, "log", "--format=%h %s", f"main..{branch}").splitlines()


def _git(directory: Path, *words: str) -> str:
    program = find_git()
    done = run_program([program, *words], cwd=directory, environment={**_outside(), **_SETTINGS})
    if done.returncode:
        raise RatchetError(f"git {words[0]} failed in {directory}: {decoded(done.stderr).strip()}")
    return decoded(done.stdout)


def _outside() -> dict[str, str]:
    """The environment without what git itself would take from it, such as the repository of a hook."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


_WIDTH, _LEFT = 760.0, 132.0
_ROW, _TALL, _BOX, _GAP, _MARGIN = 46.0, 34.0, 132.0, 26.0, 12.0
_SHORT = 12


@dataclass(frozen=True, slots=True)
class Try:
    passed: bool
    told: str


@dataclass(frozen=True, slots=True)
class StepTries:
    name: str
    commit: str
    tries: tuple[Try, ...]


def draw_tries(rows: Sequence[StepTries]) -> Markup:
    height = len(rows) * _ROW + _MARGIN
    parts = [part for at, row in enumerate(rows) for part in _row(at, row)]
    svg = tag(
        "svg",
        joined(parts),
        class_="plot small",
        viewBox=f"0 0 {_WIDTH:g} {height:g}",
        role="img",
        aria_label="The steps and their tries, each refused or kept",
        xmlns="http://www.w3.org/2000/svg",
    )
    return tag("div", svg, class_="wide")


def _row(at: int, row: StepTries) -> list[Markup]:
    y = _MARGIN + at * _ROW
    parts = [tag("text", row.name, x=_LEFT - 14, y=y + 21, text_anchor="end", class_="ink")]
    for place, each in enumerate(row.tries):
        x = _LEFT + place * (_BOX + _GAP)
        if place:
            line = f"M{x - _GAP + 4:.1f} {y + _TALL / 2:.1f}h{_GAP - 10:.1f}m-5 -4l5 4l-5 4"
            parts.append(tag("path", d=line, class_="edge"))
        parts.append(_box(x, y, place + 1, each))
    x = _LEFT + len(row.tries) * (_BOX + _GAP)
    parts.append(tag("text", row.commit[:_SHORT], x=x - _GAP + 14, y=y + 21, class_="mono"))
    return parts


def _box(x: float, y: float, number: int, each: Try) -> Markup:
    word, colour = ("kept", "good") if each.passed else ("refused", "bad")
    title = tag("title", one_line(each.told, 300))
    middle = x + _BOX / 2
    return joined(
        [
            tag("rect", title, x=x, y=y, width=_BOX, height=_TALL, rx=7, class_=f"box {colour}"),
            tag("text", f"try {number}: {word}", x=middle, y=y + 21, text_anchor="middle", class_="ink"),
        ]
    )


WISH = "Add discounts and receipts to the till, with tests."
NAME = "0001-discounts-and-receipts"
# Of what happens to a step or to the branch: what is told of it.
_TOLD = {
    "step_started": "the author works (a recording)",
    "qa_failed": "refused",
    "step_fix": "goes back to its author with what was wrong",
    "qa_passed": "kept",
}


def act(stage: DemoStage) -> Shown:
    repository, remote = make_till(stage.place.directory)
    stage.say(f"a git repository with one test, {repository}, and a bare one as its remote")
    project_id = _set_up(stage, str(repository))
    run_id = _begun(stage, project_id)
    stage.say(f"Run {run_id}: {WISH}")
    stage.carried(run_id, lambda event: _tell(stage, event))
    pushed = pushed_log(remote, NAME)
    stage.say(f"the remote has {len(pushed)} new commits on {NAME}")
    return _shown(stage, run_id, repository, pushed)


def _set_up(stage: DemoStage, repository: str) -> int:
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


def _begun(stage: DemoStage, project_id: int) -> int:
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


def _tell(stage: DemoStage, event: Event) -> None:
    if event.type == "planned":
        stage.say(f"planned (a recording): {event.message}")
    elif event.type in _TOLD:
        with stage.ledger.read() as tx:
            name = get_protocol_step(tx, event.step_id or 0).name
        reason = f": {event.message}" if event.type.startswith("qa_") else ""
        stage.say(f"{name} {_TOLD[event.type]}{reason}")


def _shown(stage: DemoStage, run_id: int, repository: Path, pushed: Sequence[str]) -> Shown:
    with stage.ledger.read() as tx:
        rows = [
            StepTries(
                step.name, step.commit or "", tuple(_try(each) for each in list_attempts(tx, step.step_id))
            )
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
            DemoCommand(f"ratchet protocol show {run_id}", "its steps and what to do next"),
            DemoCommand(f"ratchet protocol log {run_id}", "everything that was said"),
            DemoCommand(
                f"ratchet step show {run_id}/01 --print report --attempt 1", "why the first try was refused"
            ),
            DemoCommand(f"git -C {quote(str(repository))} log --oneline {NAME}", "the branch"),
        ),
        pictures=(draw_tries(rows),),
        quotes={"Why it was refused": refused[0][1], "The branch at the remote": "\n".join(pushed)},
    )


def _try(attempt: Attempt) -> Try:
    return Try(attempt.outcome is Outcome.PASSED, attempt.reason or "")
