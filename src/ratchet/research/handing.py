"""Handing in: the workspace as it is becomes a commit, and the commit a trial."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from ratchet.kernel import Misuse
from ratchet.ledger import Transaction
from ratchet.ledger.trial_rows import Trial
from ratchet.ledger.trials import Submission
from ratchet.research.campaign import REPLAY, Campaign
from ratchet.research.sessions import Idea
from ratchet.research.trial import finish_trial, open_named
from ratchet.research.turn import Turn
from ratchet.workspaces import RefsMoved, Workspace
from ratchet.workspaces.removal import remove_tree


@dataclass(kw_only=True)
class Handing:
    """What one session has handed in so far. `parent` is the trial that the workspace was made from."""

    campaign: Campaign
    turn: Turn
    workspace: Workspace
    parent: int
    trials: list[Trial] = field(default_factory=list)

    async def submit(self, idea: Idea) -> Trial:
        """Commit, measure, decide. Later edits of the workspace change nothing any more."""
        submission = await self.prepare(idea)
        with self.campaign.job.write() as tx:
            trial = self.open(tx, submission)
        return await finish_trial(self.campaign, trial)

    def open(self, tx: Transaction, submission: Submission) -> Trial:
        """The trial that what was prepared becomes, together with its commit."""
        tx.after_commit(self._count)
        return open_named(tx, self.campaign, submission)

    async def prepare(self, idea: Idea, *, proposal: Any = None) -> Submission:
        """A commit of the workspace with what is said about it. Raises `Misuse` when nothing was changed."""
        commit = await asyncio.to_thread(self._commit, idea.hypothesis)
        specialist = self.turn.specialist
        engine = self.campaign.engine(specialist)
        return Submission(
            specialist=specialist.name,
            domain=specialist.domain,
            hypothesis=idea.hypothesis,
            expected_delta=idea.expected_delta,
            notes=idea.notes,
            commit=commit,
            parent=idea.parent,
            attempt_id=self.turn.opened.id,
            proposal=proposal,
            simulated=engine.name == REPLAY,
        )

    def _count(self) -> None:
        """A promised trial is being made."""
        self.campaign.promised.discard(self.turn.lane.name)
        self.campaign.submitted += 1

    def _commit(self, hypothesis: str) -> str:
        for name in self.campaign.task.output_dirs:
            remove_tree(self.workspace.path / name)
        try:
            made = self.workspace.commit(f"{hypothesis}\n\nSpecialist: {self.turn.specialist.name}\n")
        except RefsMoved as moved:
            self.campaign.repository.restore(moved.moved)
            raise
        if not made.changed:
            raise Misuse("nothing was changed, so there is nothing to try", hint="edit the recipe first")
        return made.hash
