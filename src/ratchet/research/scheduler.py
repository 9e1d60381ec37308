"""Which specialist may begin a session now, and what the ledger says that the session begins with."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from ratchet.ledger import Step, Transaction
from ratchet.ledger.research import SpecialistRow, Standing, get_standings
from ratchet.ledger.runs import find_or_create_step
from ratchet.ledger.trial_pages import ended_since
from ratchet.ledger.trials import Trial
from ratchet.loop import OPENED, OpenAttempt, begin_attempt, passed
from ratchet.research.adapter import Specialist
from ratchet.research.campaign import Campaign
from ratchet.research.decision import Champion
from ratchet.research.views import lineage_off_view, lineage_view

# How often those who wait look whether the run's time is over.
_LOOK_SECONDS = 15.0


@dataclass(eq=False, slots=True)
class Lane:
    """A place for the sessions of one specialist, one after the other. `step` is its row in the ledger.

    `refused` says why no session may begin in it before another one has ended.
    """

    specialist: Specialist
    name: str
    step: Step | None = None
    busy: bool = False
    failures: int = 0
    ready_at: float = 0.0
    used_at: float = 0.0
    ended_before: int = 0
    refused: str | None = None


class SessionScheduler:
    """Hands out lanes, those of urgent specialists first, then the one that waited longest.

    A specialist sits in one lane; one whose engine learns from scores in as many as there are workers, since its
    sessions take no time. No more sessions are begun than trials are left for them to hand in.
    """

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.stopped: str | None = None
        self.out_of_budget = False
        self._changed = asyncio.Condition()
        self._ended = 0
        self._lanes = [
            Lane(each, each.name if number == 0 else f"{each.name}#{number + 1}")
            for each in campaign.specialists
            for number in range(campaign.parallel if campaign.engine(each).capabilities.learns_scores else 1)
        ]

    async def wait(self, seconds: float) -> None:
        """Stay away for so long, or until the run is over."""
        async with self._changed:
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait_for(lambda: self.stopped is not None)
            except TimeoutError:
                return

    async def take_lane(self) -> Lane | None:
        """The next lane to work in, or nothing when the run is over. Waits while no lane may begin."""
        async with self._changed:
            while self.stopped is None:
                lane = self._choice()
                if lane is not None:
                    lane.busy, lane.used_at, lane.ended_before = True, time.monotonic(), self._ended
                    self.campaign.promised.add(lane.name)
                    return lane
                if self._made_all() and not any(each.busy for each in self._lanes):
                    self.stopped = self.campaign.stops.made_all
                    break
                if all(each.refused for each in self._lanes):
                    self.stopped = self._lanes[0].refused
                    break
                try:
                    # Not `wait_for`: that forgets a cancellation which comes together with a change.
                    async with asyncio.timeout(self._pause()):
                        await self._changed.wait()
                except TimeoutError:
                    self.stopped = self.campaign.over()
            self._changed.notify_all()
            return None

    async def leave_lane(
        self,
        lane: Lane,
        *,
        problem: str | None,
        quick: bool = False,
        asked: float | None = None,
        refused: str | None = None,
    ) -> float:
        """Leave a lane, and say how long it rests: for a while after a problem, and for as long as an endpoint `asked`.

        `quick` forgives the first problem. A lane that was `refused` waits until another session has ended and has
        given back what it did not use.
        """
        settings = self.campaign.job.runtime.settings.research
        pause = 0.0
        async with self._changed:
            lane.busy = False
            self.campaign.promised.discard(lane.name)
            if refused is None:
                self._ended += 1
                for each in self._lanes:
                    each.refused = None
            elif lane.ended_before == self._ended:
                lane.refused = refused
            lane.failures = 0 if problem is None else lane.failures + 1
            if lane.failures > int(quick):
                pause = min(
                    settings.backoff_cap_seconds,
                    settings.backoff_seconds * 2 ** min(lane.failures - 1 - int(quick), 30),
                )
                pause = max(pause, asked or 0.0)
                lane.ready_at = time.monotonic() + pause
            self._changed.notify_all()
        return pause

    def fails_everywhere(self, most: int) -> bool:
        """Whether every specialist has failed so often in a row."""
        return all(lane.failures >= most for lane in self._lanes)

    async def stop(self, reason: str) -> None:
        async with self._changed:
            self.stopped = self.stopped or reason
            self._changed.notify_all()

    def _choice(self) -> Lane | None:
        if self._made_all():
            return None
        now = time.monotonic()
        free = [lane for lane in self._lanes if not lane.busy and not lane.refused and lane.ready_at <= now]
        return min(free, key=lambda lane: (-lane.specialist.priority, lane.used_at), default=None)

    def _made_all(self) -> bool:
        most = self.campaign.stops.trials
        return most is not None and self.campaign.submitted + len(self.campaign.promised) >= most

    def _pause(self) -> float:
        now = time.monotonic()
        waits = [lane.ready_at - now for lane in self._lanes if not lane.busy and lane.ready_at > now]
        return min([*waits, _LOOK_SECONDS])


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTurn:
    """One session that may begin: on whose account, from which trial, with which limits and which prompt."""

    lane: Lane
    opened: OpenAttempt
    seconds: float
    standing: Standing
    base: Champion
    row: SpecialistRow
    news: tuple[Trial, ...] = ()
    lineage: str = ""

    @property
    def specialist(self) -> Specialist:
        return self.lane.specialist

    @property
    def reported(self) -> int:
        """The last trial whose result is in the session's prompt."""
        return self.news[-1].number if self.news else self.row.told


async def take_turn(campaign: Campaign, lane: Lane) -> SessionTurn | str:
    """Open an attempt for a session, or say why the run is over. Raises `BudgetExceeded`."""
    turn = await campaign.together.write(lambda tx: _turn(tx, campaign, lane))
    if isinstance(turn, SessionTurn):
        lane.step = turn.opened.step
        passed(OPENED)
    return turn


def _turn(tx: Transaction, campaign: Campaign, lane: Lane) -> SessionTurn | str:
    settings = campaign.job.runtime.settings
    specialist, run = lane.specialist, campaign.run
    campaign.count_time(tx)
    standing, row = get_standings(tx, run.id, specialist.name)
    over = campaign.stops.reached(standing)
    if over is not None:
        return over
    # The lane's step runs as long as the run does.
    step = lane.step or find_or_create_step(tx, run.id, lane.name, {"specialist": specialist.name})[0]
    opened = begin_attempt(tx, campaign.job, run, step, side_by_side=campaign.side_by_side(specialist))
    news: list[Trial] = []
    lineage = ""
    if campaign.engine(specialist).capabilities.learns_scores:
        news = ended_since(tx, run.id, specialist.name, row.told)
    elif campaign.plan.lineage:
        chars = settings.research.prompt_chars
        lineage = lineage_view(tx, run.id, specialist.name, budget_chars=chars, standing=standing)
    else:
        lineage = lineage_off_view(standing)
    return SessionTurn(
        lane=lane,
        opened=opened,
        seconds=min(campaign.task.session_seconds, campaign.stops.seconds_left(standing)),
        standing=standing,
        base=campaign.best,
        row=row,
        news=tuple(news),
        lineage=lineage,
    )
