"""Having an engine plan, until the plan can be carried out."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ratchet.asking import Answer, BadAnswer, Question, Tried, find_object, try_until_good
from ratchet.engines import Engine
from ratchet.engines.providers import default_engine
from ratchet.engines.registry import Surroundings, engine_names, look_at
from ratchet.ledger.sessions import get_session
from ratchet.protocols.authorship import author_of, read_author, write_author
from ratchet.protocols.planning.branching import Begun
from ratchet.protocols.planning.plan import Plan
from ratchet.protocols.planning.prompts import plan_prompt, planner_rules
from ratchet.protocols.planning.reading import read_plan
from ratchet.protocols.planning.schema import PLAN_SCHEMA, with_every_key
from ratchet.protocols.planning.sight import Sight
from ratchet.protocols.planning.work import PLAN_STEP, Work
from ratchet.runtime.attempts import OpenAttempt
from ratchet.workspaces import Identity

ROLE = "planner"
# They change no files, or are no live engine.
_NO_AUTHORS = ("llm", "replay", "search")


@dataclass(frozen=True, slots=True)
class Proposed:
    """An accepted plan, when that was, whose commit it becomes, and which engine and model made it.

    `repaired` is what was wrong with the plans before it.
    """

    plan: Plan
    at: int
    author: Identity | None
    engine: str
    model: str | None
    repaired: tuple[str, ...]


async def propose_plan(work: Work, engine: Engine, begun: Begun, sight: Sight) -> Proposed:
    """The plan of an engine. Raises `NoAnswer` when it has none that can be carried out."""
    names = _named(work)
    engines = names if work.protocol.simulated else await authors(work)
    structured = engine.capabilities.structured_output

    async def ask(before: Tried | None) -> Question:
        prompt = plan_prompt(sight, names, before, with_schema=not structured)
        return Question(ROLE, planner_rules(), prompt, with_every_key(PLAN_SCHEMA), reads_text=True)

    async def check(_opened: OpenAttempt, answer: Answer) -> Any:
        plan = await asyncio.to_thread(_read, work, answer, engines)
        # Part of what is remembered, so that the commit of the plan is the same whoever makes it.
        made = {"at": int(time.time()), "author": write_author(author_of(work.project))}
        return {"plan": plan.data, "session": answer.session, **made}

    asker = work.asker("planning", engine, begun.ground)
    good = await try_until_good(asker, PLAN_STEP, ask, check, first=begun.first, before=begun.before)
    with work.job.ledger.read() as tx:
        session = get_session(tx, good.value["session"])
    return Proposed(
        Plan.of(good.value["plan"]),
        good.value["at"],
        read_author(good.value["author"]),
        session.engine,
        session.model,
        good.repaired,
    )


def _named(work: Work) -> list[str]:
    """The engines that the planner is told of: by the settings alone, so that a recording of it can be replayed where
    other ones are ready. A plan that names one which is not is refused."""
    return [name for name in engine_names(work.job.runtime.settings) if name not in _NO_AUTHORS]


async def authors(work: Work) -> list[str]:
    """The engines that may carry out a step: those that are ready, and the usual one, which is asked in any case."""
    runtime = work.job.runtime
    around = Surroundings(runtime.settings, runtime.home, os.environ)
    engine = runtime.settings.protocols.engine or default_engine(runtime.settings, os.environ)
    usual = engine.partition(":")[0]
    looked = await look_at(_named(work), around)
    return [each.name for each in looked if each.readiness.ready or each.name == usual]


def _read(work: Work, answer: Answer, engines: Collection[str]) -> Plan:
    try:
        data = answer.output if answer.output is not None else find_object(answer.text, "step_files")
    except ValueError as error:
        raise BadAnswer([str(error)]) from None
    return read_plan(data, work.protocol.name, engines=engines)
