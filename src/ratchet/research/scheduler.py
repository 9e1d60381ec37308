"""Which specialist may begin a session now, and what the ledger says that the session begins with."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from ratchet.kernel import Limits, Misuse, TrialStatus, Usage, exp_id
from ratchet.ledger import Step, Transaction
from ratchet.ledger.research import SpecialistRow, Standing, get_standings, list_specialists
from ratchet.ledger.runs import find_or_create_step
from ratchet.ledger.trial_pages import children, ended_since, latest_trials, tallies
from ratchet.ledger.trials import Trial, find_trial, get_trial
from ratchet.ledger.usage import account
from ratchet.loop import OPENED, OpenAttempt, begin_attempt, passed
from ratchet.research.adapter import Specialist
from ratchet.research.campaign import Campaign, Stops
from ratchet.research.strategy import Choice
from ratchet.research.views import lineage_off_view, lineage_view
from ratchet.runtime import configured_budgets

# How often those who wait look whether the run's time is over.
_LOOK_SECONDS = 15.0
# Of how many of its own last trials a specialist is shown the evaluator's words and the log.
_SHOWN = 2
# How many of those that came from the program of a session it is shown, where that is not the best.
_CHILDREN = 6


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


@dataclass(slots=True)
class _Brought:
    """What a specialist has used of the run, and how many of its trials were kept."""

    used: Usage = field(default_factory=Usage)
    trials: int = 0
    keeps: int = 0


# The share of the trials that is split evenly; who gets the rest is found out.
_EVEN = 0.5
# Every so often whoever waited longest is next, so that no specialist is given up for good.
_ANYONE = 0.2


class BudgetShares:
    """A bandit over specialists, and so over models: who is likely to bring most for its part of the budget.

    What it knows are the rows of specialists and the tallies of their trials.
    """

    def __init__(self, stops: Stops, limits: Limits, names: Iterable[str]) -> None:
        self._stops = stops
        self._limits = limits
        self._brought = {name: _Brought() for name in names}

    def load(
        self, rows: Iterable[SpecialistRow], ended: Mapping[str, Mapping[TrialStatus, int]]
    ) -> BudgetShares:
        for row in rows:
            if row.name in self._brought:
                statuses = [each for each, count in ended.get(row.name, {}).items() for _ in range(count)]
                self.add(row.name, row.usage, statuses)
        return self

    def add(self, name: str, used: Usage, statuses: Iterable[TrialStatus | None]) -> None:
        """Count what a session has used, and how its trials ended."""
        brought = self._brought[name]
        brought.used += used
        for status in statuses:
            brought.trials += status is not None and status.tried
            brought.keeps += status is TrialStatus.KEEP

    def may_begin(self, name: str, at_work: Mapping[str, int], given_up: Collection[str]) -> bool:
        """Whether there are trials left that are not another's by right. One that only fails has no right to any."""
        most = self._stops.trials
        if most is None:
            return True
        floor = int(_EVEN * most / len(self._brought))
        taken = {one: each.trials + at_work.get(one, 0) for one, each in self._brought.items()}
        others = sum(
            max(0, floor - count) for one, count in taken.items() if one != name and one not in given_up
        )
        return most - sum(taken.values()) > others

    def pick(self, names: Sequence[str], chance: Random) -> str:
        """Which of these is next; the first is the one that waited longest."""
        untried = [name for name in names if not self._brought[name].trials]
        if untried or len(names) == 1 or chance.random() < _ANYONE:
            return (untried or names)[0]
        return max(names, key=lambda name: self._drawn(self._brought[name], chance))

    def _drawn(self, brought: _Brought, chance: Random) -> float:
        """Keeps for a part of the budget, as they may be by what is known."""
        rate = chance.betavariate(1 + brought.keeps, 1 + brought.trials - brought.keeps)
        return rate / max(self._part(brought) / brought.trials, 1e-9)

    def _part(self, brought: _Brought) -> float:
        """How much of the run it has used, by the stop that it has used most of; in seconds if there is none."""
        stops, limits, used = self._stops, self._limits, brought.used
        parts = [
            amount / most
            for amount, most in (
                (brought.trials, stops.trials),
                (used.wall_seconds, stops.hours and stops.hours * 3600),
                (used.tokens, limits.tokens),
                (used.cost_usd, limits.cost_usd),
            )
            if most
        ]
        return max(parts, default=used.wall_seconds)


def budget_shares(campaign: Campaign) -> BudgetShares:
    """As they stand in the ledger."""
    names = [each.name for each in campaign.specialists]
    with campaign.job.ledger.read() as tx:
        limits = account(tx, "run", campaign.run_id, configured_budgets(campaign.job.runtime.settings)).limits
        rows, ended = list_specialists(tx, campaign.run_id), tallies(tx, campaign.run_id)
    return BudgetShares(campaign.stops, limits or Limits(), names).load(rows, ended)


class SessionScheduler:
    """Hands out lanes, those of urgent specialists first, then of those who bring most for their part of the budget.

    Half of the trials are split evenly: no specialist takes them from another that has not had its part.

    A specialist sits in one lane; one whose engine learns from scores in as many as there are workers, since its
    sessions take no time. No more sessions are begun than trials are left for them to hand in.
    """

    def __init__(self, campaign: Campaign) -> None:
        self.campaign = campaign
        self.stopped: str | None = None
        self.out_of_budget = False
        self._changed = asyncio.Condition()
        self._ended = 0
        self._shares = budget_shares(campaign)
        self._chance = Random(f"{campaign.plan.seed}/lanes")
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
                    self.stopped = self.stopped or self.campaign.over()
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
        used: Usage | None = None,
        trials: Sequence[Trial] = (),
    ) -> float:
        """Leave a lane, and say how long it rests: for a while after a problem, and for as long as an endpoint `asked`.

        `quick` forgives the first problem. A lane that was `refused` waits until another session has ended and has
        given back what it did not use.
        """
        settings = self.campaign.job.runtime.settings.research
        pause = 0.0
        async with self._changed:
            lane.busy = False
            if used is not None:
                self._shares.add(lane.specialist.name, used, [trial.status for trial in trials])
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
        if len(self.campaign.specialists) > 1:
            free = self._with_a_right(free)
        if not free:
            return None
        first = max(lane.specialist.priority for lane in free)
        urgent = [lane for lane in free if lane.specialist.priority == first]
        urgent.sort(key=lambda lane: lane.used_at)
        names = list(dict.fromkeys(lane.specialist.name for lane in urgent))
        picked = self._shares.pick(names, self._chance)
        return next(lane for lane in urgent if lane.specialist.name == picked)

    def _with_a_right(self, free: list[Lane]) -> list[Lane]:
        at_work = Counter(lane.specialist.name for lane in self._lanes if lane.busy)
        given_up = {lane.specialist.name for lane in self._lanes if lane.failures > 1 or lane.refused}
        return [lane for lane in free if self._shares.may_begin(lane.specialist.name, at_work, given_up)]

    def _made_all(self) -> bool:
        most = self.campaign.stops.trials
        return most is not None and self.campaign.submitted + len(self.campaign.promised) >= most

    def _pause(self) -> float:
        now = time.monotonic()
        waits = [lane.ready_at - now for lane in self._lanes if not lane.busy and lane.ready_at > now]
        return min([*waits, _LOOK_SECONDS])


class SessionBase(NamedTuple):
    """The trial that a session begins from."""

    number: int
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTurn:
    """One session that may begin: on whose account, from which trial, with which limits and which prompt.

    `beside` are the trials that it is shown as inspirations, and `siblings` those that came from its own before.
    """

    lane: Lane
    opened: OpenAttempt
    seconds: float
    standing: Standing
    base: SessionBase
    row: SpecialistRow
    choice: Choice
    with_history: bool
    news: tuple[Trial, ...] = ()
    lineage: str = ""
    shown: tuple[Trial, ...] = ()
    beside: tuple[Trial, ...] = ()
    siblings: tuple[Trial, ...] = ()

    @property
    def specialist(self) -> Specialist:
        return self.lane.specialist

    @property
    def reported(self) -> int:
        """The last trial whose result is in the session's prompt."""
        return self.news[-1].number if self.news else self.row.told


async def take_turn(campaign: Campaign, lane: Lane) -> SessionTurn | str:
    """Open an attempt for a session, or say why the run is over. Raises `BudgetExceeded`."""
    choice = campaign.choose(lane.specialist)
    turn = await campaign.together.write(lambda tx: _turn(tx, campaign, lane, choice))
    if isinstance(turn, SessionTurn):
        lane.step = turn.opened.step
        passed(OPENED)
    return turn


def _turn(tx: Transaction, campaign: Campaign, lane: Lane, choice: Choice) -> SessionTurn | str:
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
    base = _base(tx, campaign, choice)
    news: list[Trial] = []
    shown: list[Trial] = []
    beside: list[Trial] = []
    siblings: list[Trial] = []
    lineage = ""
    with_history = campaign.plan.lineage and not choice.alone
    if campaign.engine(specialist).capabilities.learns_scores:
        news = ended_since(tx, run.id, specialist.name, row.told)
    elif with_history:
        chars = settings.research.prompt_chars
        lineage = lineage_view(tx, run.id, specialist.name, budget_chars=chars, standing=standing)
        last = latest_trials(tx, run.id, specialist=specialist.name, limit=_SHOWN)
        shown = [*(get_trial(tx, run.id, each) for each in (base.number, campaign.best.number)), *last]
        beside = [_chosen(tx, campaign, each) for each in choice.inspirations]
        if base.number != campaign.best.number:
            siblings = children(tx, run.id, base.number, limit=_CHILDREN)
    else:
        lineage = lineage_off_view(standing)
        shown = [get_trial(tx, run.id, base.number)]
    return SessionTurn(
        lane=lane,
        opened=opened,
        seconds=min(campaign.task.session_seconds, campaign.stops.seconds_left(standing)),
        standing=standing,
        base=base,
        row=row,
        choice=choice,
        with_history=with_history,
        news=tuple(news),
        lineage=lineage,
        shown=tuple({each.number: each for each in shown}.values()),
        beside=tuple(beside),
        siblings=tuple(siblings),
    )


def _base(tx: Transaction, campaign: Campaign, choice: Choice) -> SessionBase:
    best = campaign.best
    if choice.parent is None or choice.parent == best.number:
        return SessionBase(best.number, best.commit)
    found = _chosen(tx, campaign, choice.parent)
    assert found.commit is not None
    return SessionBase(found.number, found.commit)


def _chosen(tx: Transaction, campaign: Campaign, number: int) -> Trial:
    """A trial that the strategy has chosen. Raises `Misuse` for one that no session can begin from."""
    found = find_trial(tx, campaign.run_id, number)
    if found is None or found.commit is None or found.status is None or not found.status.valid:
        raise Misuse(
            f"the strategy {campaign.strategy} chose trial {exp_id(number)}, which has no valid score",
            hint="choose among the members of the population",
        )
    return found
