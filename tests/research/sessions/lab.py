"""A run that has a baseline and a few trials, and sittings in it whose trials are measured by a stand-in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ratchet.engines import EngineTool
from ratchet.kernel import Direction, TrialStatus
from ratchet.ledger import Ledger
from ratchet.ledger.research import get_standing, open_research
from ratchet.ledger.runs import create_run
from ratchet.ledger.trials import Ending, Submission, Trial, end_trial, open_trial
from ratchet.research.adapter import Specialist, TaskAdapter
from ratchet.research.measurement.checkout import CANDIDATE_BOUNDS
from ratchet.research.sessions import Idea, SessionContext, tools_for
from ratchet.workspaces import Repository, Workspace, WorkspaceKind

RECIPE = "WIDTH = 64\n\n\ndef answer(question):\n    return WIDTH\n"
HYPOTHESIS = "widen the layer, since it looks too narrow"
GOOD = {"hypothesis": HYPOTHESIS, "expected_delta": 0.5}


@dataclass
class Lab:
    ledger: Ledger
    repository: Repository
    task: TaskAdapter
    run_id: int
    ideas: list[Idea] = field(default_factory=list)

    def context(
        self,
        *,
        specialist: str = "opt",
        parent: int = 0,
        lineage: bool = True,
        kind: WorkspaceKind = WorkspaceKind.TREE,
        ends: TrialStatus = TrialStatus.DISCARD,
        task: TaskAdapter | None = None,
    ) -> SessionContext:
        """A session whose trials all end in the same way."""
        workspace = self.repository.workspace(self.commit(parent), kind=kind)

        async def submit(idea: Idea) -> Trial:
            self.ideas.append(idea)
            await asyncio.sleep(0)
            return self.measured(workspace, idea, specialist, ends)

        return SessionContext(
            run_id=self.run_id,
            task=task or self.task,
            specialist=Specialist(name=specialist),
            repository=self.repository,
            workspace=workspace,
            parent=parent,
            submit=submit,
            read=self.ledger.read,
            write=self.ledger.write,
            lineage=lineage,
        )

    def measured(self, workspace: Workspace, idea: Idea, specialist: str, status: TrialStatus) -> Trial:
        made = workspace.commit(idea.hypothesis)
        return self.record(made.hash, status, parent=idea.parent, specialist=specialist, idea=idea)

    def trial(
        self, recipe: str, status: TrialStatus = TrialStatus.DISCARD, *, parent: int = 0, **more: Any
    ) -> int:
        """A trial that somebody has made with this recipe, and `more` files."""
        files = {"recipe.py": recipe.encode(), **{name: text.encode() for name, text in more.items()}}
        commit = self.repository.commit_files(files, parent=self.commit(parent), message="a trial")
        return self.record(commit, status, parent=parent).number

    def record(
        self,
        commit: str | None,
        status: TrialStatus | None,
        *,
        parent: int | None,
        specialist: str = "arch",
        idea: Idea | None = None,
    ) -> Trial:
        with self.ledger.write() as tx:
            submission = Submission(
                specialist=specialist,
                hypothesis=idea.hypothesis if idea else "an idea of somebody else",
                expected_delta=idea.expected_delta if idea else "",
                notes=idea.notes if idea else "",
                commit=commit,
                parent=parent,
            )
            opened = open_trial(tx, self.run_id, submission, baseline=parent is None)
            if status is None:
                return opened
            score = 1.0 + opened.number if status.valid else None
            best = get_standing(tx, self.run_id).best or 0
            ending = Ending(status=status, score=score, reason=f"it ended as {status}", compared_to=best)
            return end_trial(tx, self.run_id, opened.number, replace(ending, delta=0.25 if score else None))

    def commit(self, number: int) -> str:
        return self.repository.resolve(self.trials()[number].commit or "")

    def trials(self) -> dict[int, Trial]:
        from ratchet.ledger.trial_pages import latest_trials

        with self.ledger.read() as tx:
            return {trial.number: trial for trial in latest_trials(tx, self.run_id)}


@contextmanager
def open_lab(directory: Path, ledger: Ledger) -> Iterator[Lab]:
    root = directory / "task"
    root.mkdir()
    task = TaskAdapter(
        name="widths", root=root, recipe=("recipe.py", "lib"), stage_files={"run.sh": "run.sh"}
    )
    with ledger.write() as tx:
        run_id = create_run(tx, "research", "a run")
        open_research(
            tx,
            run_id,
            task=task.name,
            score_field="score",
            direction=Direction.MAX,
            keep_policy="strict",
        )
    with Repository.create(directory / "repo.git", bounds=CANDIDATE_BOUNDS) as repository:
        files = {"recipe.py": RECIPE.encode(), "lib/more.py": b"DEPTH = 3\n", "run.sh": b"exit 0\n"}
        first = repository.commit_files(files, parent=None, message="baseline")
        made = Lab(ledger, repository, task, run_id)
        made.record(first, TrialStatus.BASELINE, parent=None, specialist="baseline")
        yield made


def tools(context: SessionContext) -> dict[str, EngineTool]:
    return {tool.name: tool for tool in tools_for(context)}


def use(context: SessionContext, name: str, **given: Any) -> Any:
    """What a tool answers, read as JSON."""
    return json.loads(say(context, name, given))


def say(context: SessionContext, name: str, given: Mapping[str, Any]) -> str:
    async def run() -> str:
        return await tools(context)[name].run(given)

    return asyncio.run(run())
