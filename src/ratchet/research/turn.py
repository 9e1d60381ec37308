"""Beginning a session: one look at the ledger that says whether it may, and with what."""

from __future__ import annotations

from dataclasses import dataclass

from ratchet.ledger import Step, Transaction
from ratchet.ledger.research import SpecialistRow, Standing, get_standings
from ratchet.ledger.runs import find_or_create_step
from ratchet.ledger.trial_pages import ended_since
from ratchet.ledger.trial_rows import Trial
from ratchet.loop import OPENED, OpenAttempt, begin_attempt, passed
from ratchet.research.adapter import Specialist
from ratchet.research.campaign import Campaign
from ratchet.research.desk import Lane
from ratchet.research.keeping import Champion
from ratchet.research.views import lineage_off_view, lineage_view


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One session that may begin: on whose account, from which trial, with what to go on and what to be told."""

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
    def told(self) -> int:
        """The last trial whose result the session is told."""
        return self.news[-1].number if self.news else self.row.told


async def take_turn(campaign: Campaign, lane: Lane) -> Turn | str:
    """Open an attempt for a session, or say why the run is over. Raises `BudgetExceeded`."""
    turn = await campaign.together.write(lambda tx: _turn(tx, campaign, lane))
    if isinstance(turn, Turn):
        lane.step = turn.opened.step
        passed(OPENED)
    return turn


def _turn(tx: Transaction, campaign: Campaign, lane: Lane) -> Turn | str:
    settings = campaign.job.runtime.settings
    specialist, run = lane.specialist, campaign.run
    campaign.count_time(tx)
    standing, row = get_standings(tx, run.id, specialist.name)
    over = campaign.stops.reached(standing)
    if over is not None:
        return over
    step = lane.step or _step(tx, campaign, lane)
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
    return Turn(
        lane=lane,
        opened=opened,
        seconds=min(campaign.task.session_seconds, campaign.stops.seconds_left(standing)),
        standing=standing,
        base=campaign.best,
        row=row,
        news=tuple(news),
        lineage=lineage,
    )


def _step(tx: Transaction, campaign: Campaign, lane: Lane) -> Step:
    """The lane's step, which runs as long as the run does."""
    return find_or_create_step(tx, campaign.run_id, lane.name, {"specialist": lane.specialist.name})[0]
