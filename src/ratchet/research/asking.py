"""What a session is asked, and the tools that it is given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from ratchet.engines import Request
from ratchet.engines.tool_server import Way, offer, way_to
from ratchet.kernel import TrialStatus
from ratchet.ledger.trial_rows import Trial
from ratchet.research.adapter import Specialist
from ratchet.research.campaign import Campaign
from ratchet.research.handing import Handing
from ratchet.research.sessions import Sitting, attended, shared_prompt, system_prompt, user_prompt
from ratchet.research.turn import Turn


@asynccontextmanager
async def asked(campaign: Campaign, turn: Turn, handing: Handing) -> AsyncIterator[Request]:
    """The request of a session that is held inside the block."""
    engine = campaign.engine(turn.specialist)
    if engine.capabilities.learns_scores:
        yield _search(campaign, turn, handing)
        return
    sitting = Sitting(
        run_id=campaign.run_id,
        task=campaign.task,
        specialist=turn.specialist,
        repository=campaign.repository,
        workspace=handing.workspace,
        parent=handing.parent,
        submit=handing.submit,
        read=campaign.job.ledger.read,
        write=campaign.job.write,
        lineage=campaign.plan.lineage,
        trials=handing.trials,
    )
    way = way_to(engine)
    async with attended(sitting, engine=engine.name, with_tools=way is not Way.NONE) as tools:
        async with offer(engine, _conversation(campaign, turn, handing, way), tools) as offered:
            yield offered.request
        handing.parent = sitting.parent


def _conversation(campaign: Campaign, turn: Turn, handing: Handing, way: Way) -> Request:
    specialist, workspace = turn.specialist, handing.workspace
    most = campaign.stops.trials
    return Request(
        prompt=user_prompt(
            campaign.task,
            specialist,
            directory=workspace.path,
            parent=handing.parent,
            lineage=turn.lineage,
            limits=turn.opened.limits,
            seconds=turn.seconds,
            trials_left=None if most is None else most - turn.standing.trials,
            way=way,
        ),
        system=_system_prompt(campaign, specialist, way),
        model=campaign.model(specialist),
        workspace=workspace.path,
        environment=workspace.environment,
        readable=workspace.readable,
        hidden=campaign.evaluators,
        deadline_seconds=turn.seconds,
        limits=turn.opened.limits,
    )


def _system_prompt(campaign: Campaign, specialist: Specialist, way: Way) -> str:
    lineage = campaign.plan.lineage
    shared = campaign.shared_prompts.get(way)
    if shared is None:
        shared = campaign.shared_prompts[way] = shared_prompt(campaign.task, lineage=lineage, way=way)
    return system_prompt(campaign.task, specialist, lineage=lineage, way=way, shared=shared)


def _search(campaign: Campaign, turn: Turn, handing: Handing) -> Request:
    """A search is asked by numbers: what it proposed and how that did, and which draw this is."""
    index = campaign.specialists.index(turn.specialist)
    data: dict[str, Any] = {
        "feedback": [_fed(trial) for trial in turn.news if trial.proposal is not None and _counts(trial)],
        "trial": campaign.next_draw(),
        "goal": str(campaign.task.direction),
        # One that has settled begins anew, elsewhere.
        "seed": campaign.plan.seed + 1000 * index + turn.row.failures,
        "files": [_pattern(handing, path) for path in campaign.task.recipe],
    }
    return Request(
        prompt="",
        model=campaign.model(turn.specialist),
        workspace=handing.workspace.path,
        resume=turn.row.resume,
        deadline_seconds=turn.seconds,
        limits=turn.opened.limits,
        data=data,
    )


def _counts(trial: Trial) -> bool:
    return trial.status is not None and trial.status.tried


def _fed(trial: Trial) -> dict[str, Any]:
    valid = trial.status in (TrialStatus.KEEP, TrialStatus.DISCARD)
    return {"proposal": trial.proposal, "score": trial.score if valid else None}


def _pattern(handing: Handing, path: str) -> str:
    return f"{path}/*" if (handing.workspace.path / path).is_dir() else path
