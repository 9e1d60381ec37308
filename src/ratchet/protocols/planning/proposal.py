"""The proposal of a plan: the engine is prompted until the plan holds, then large steps are decomposed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from ratchet.engines import Engine
from ratchet.engines.providers import default_engine
from ratchet.engines.registry import EngineContext, engine_names, look_at
from ratchet.kernel import BudgetExceeded, NotFound, decoded
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol
from ratchet.ledger.questions import Clarification, list_clarifications
from ratchet.ledger.usage import get_session
from ratchet.projects.discovery import read_facts
from ratchet.protocols.names import require_number
from ratchet.protocols.planning.branch import PLAN_STEP, Begun, PlanningWork
from ratchet.protocols.planning.plan import (
    PLAN_SCHEMA,
    STEP_SCHEMA,
    PlannedStep,
    ProtocolPlan,
    read_plan,
    read_step,
    with_every_key,
)
from ratchet.protocols.spec import infer_step_type
from ratchet.protocols.stream import identity_of, read_author, write_author
from ratchet.question import (
    BadAnswer,
    EngineAnswer,
    EngineQuestion,
    NoAnswer,
    Tried,
    find_object,
    try_until_good,
)
from ratchet.runtime.attempts import OpenAttempt
from ratchet.workspaces import Identity, Repository

ROLE = "planner"
# They change no files, or are no live engine.
_NO_AUTHORS = ("llm", "replay", "search")


@dataclass(frozen=True, slots=True)
class ProposedPlan:
    """An accepted plan, when that was, whose commit it becomes, and which engine and model made it.

    `repaired` is what was wrong with the plans before it.
    """

    plan: ProtocolPlan
    at: int
    author: Identity | None
    engine: str
    model: str | None
    repaired: tuple[str, ...]


async def propose_plan(
    work: PlanningWork, engine: Engine, begun: Begun, sight: RepositoryView
) -> ProposedPlan:
    """The plan of an engine. Raises `NoAnswer` when it has none that can be carried out."""
    names = _named(work)
    engines = names if work.protocol.simulated else await authors(work)
    structured = engine.capabilities.structured_output

    async def ask(before: Tried | None) -> EngineQuestion:
        prompt = plan_prompt(sight, names, before, with_schema=not structured)
        return EngineQuestion(ROLE, planner_rules(), prompt, with_every_key(PLAN_SCHEMA), reads_text=True)

    async def check(_opened: OpenAttempt, answer: EngineAnswer) -> Any:
        plan = await asyncio.to_thread(_read, work, answer, engines)
        # Part of what is remembered, so that every process makes the same commit of the plan.
        made = {"at": int(time.time()), "author": write_author(identity_of(work.project))}
        return {"plan": plan.data, "session": answer.session, **made}

    asker = work.asker("planning", engine, begun.ground)
    good = await try_until_good(asker, PLAN_STEP, ask, check, first=begun.first, before=begun.before)
    with work.job.ledger.read() as tx:
        session = get_session(tx, good.value["session"])
    return ProposedPlan(
        ProtocolPlan.of(good.value["plan"]),
        good.value["at"],
        read_author(good.value["author"]),
        session.engine,
        session.model,
        good.repaired,
    )


def _named(work: PlanningWork) -> list[str]:
    """The engines that the planner may name: by the settings alone, so that a recording of it can be replayed where
    other ones are ready. A plan that names one which is not is refused."""
    return [name for name in engine_names(work.job.runtime.settings) if name not in _NO_AUTHORS]


async def authors(work: PlanningWork) -> list[str]:
    """The engines that may carry out a step: those that are ready, and the usual one, which is asked in any case."""
    runtime = work.job.runtime
    around = EngineContext(runtime.settings, runtime.home, os.environ)
    engine = runtime.settings.protocols.engine or default_engine(runtime.settings, os.environ)
    usual = engine.partition(":")[0]
    looked = await look_at(_named(work), around)
    return [each.name for each in looked if each.readiness.ready or each.name == usual]


def _read(work: PlanningWork, answer: EngineAnswer, engines: Collection[str]) -> ProtocolPlan:
    try:
        data = answer.output if answer.output is not None else find_object(answer.text, "step_files")
    except ValueError as error:
        raise BadAnswer([str(error)]) from None
    return read_plan(data, work.protocol.name, engines=engines)


DECOMPOSER = "decomposer"
_STEP = "decompose:"
# Beyond both, a file asks for more than one thing at a time.
_LONG_CHARACTERS = 6_000
_MANY_ITEMS = 25
_ITEM = re.compile(r"^\s*(?:[-*+]|[0-9]+[.)])\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Decomposed:
    """The plan with the steps that were taken apart, those steps, and the reasons why others were not."""

    plan: ProtocolPlan
    steps: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


async def decompose_plan(
    work: PlanningWork, engine: Engine, begun: Begun, sight: RepositoryView, plan: ProtocolPlan
) -> Decomposed:
    """The plan with every step that needs it in smaller tasks."""
    contents: dict[str, str] = {}
    failed: dict[str, str] = {}
    for step in plan.steps:
        if not needs_decomposition(step):
            continue
        try:
            contents[step.name] = await _decompose(work, engine, begun, sight, plan, step)
        except (NoAnswer, BudgetExceeded) as error:
            # The step is as good as the plan that was accepted; smaller tasks would only have been better.
            failed[step.name] = str(error)
    return Decomposed(plan.with_contents(contents), tuple(contents), failed)


def needs_decomposition(step: PlannedStep) -> bool:
    """Whether a step is to be taken apart: as the plan says, or when its file is long and lists a great deal."""
    if step.name.startswith("00-") or (step.step_type or infer_step_type(step.name)) == "setup":
        return False
    if step.needs_decomposition is not None:
        return step.needs_decomposition
    return len(step.content) > _LONG_CHARACTERS and len(_ITEM.findall(step.content)) > _MANY_ITEMS


async def _decompose(
    work: PlanningWork,
    engine: Engine,
    begun: Begun,
    sight: RepositoryView,
    plan: ProtocolPlan,
    step: PlannedStep,
) -> str:
    structured = engine.capabilities.structured_output

    async def ask(before: Tried | None) -> EngineQuestion:
        prompt = step_prompt(sight, plan, step, before, with_schema=not structured)
        return EngineQuestion(
            DECOMPOSER, decomposer_rules(), prompt, with_every_key(STEP_SCHEMA), reads_text=True
        )

    async def check(_opened: OpenAttempt, answer: EngineAnswer) -> Any:
        try:
            return read_step(
                answer.output if answer.output is not None else find_object(answer.text, "content")
            )
        except ValueError as error:
            raise BadAnswer([str(error)]) from None

    asker = work.asker("decompose", engine, begun.ground)
    good = await try_until_good(asker, f"{_STEP}{step.name}", ask, check)
    return str(good.value)


GUIDANCE = "prompts/protocol-new.prompt.md"
_MOST_FILES = 1500
_MOST_CHARACTERS = 40_000
_MOST_ANSWERS = 50
_MOST_QUESTIONS = 500


@dataclass(frozen=True, slots=True)
class RepositoryView:
    """`files` are those nearest to the top, and `more_files` how many others there are.

    `guidance` is what the repository itself says about plans, if it does.
    """

    name: str
    number: int
    folder: str
    description: str | None
    facts: Mapping[str, Any]
    checks: Sequence[Mapping[str, Any]]
    files: Sequence[str]
    more_files: int
    guidance: str | None
    answers: Sequence[Mapping[str, Any]]


def look(
    tx: Transaction, protocol: Protocol, project: Project, repository: Repository, commit: str
) -> RepositoryView:
    """The repository as it is at `commit`, and what people said."""
    facts = read_facts(project.facts)
    files = repository.list_files(commit)
    shown = _nearest(files)
    return RepositoryView(
        name=protocol.name,
        number=require_number(protocol.name),
        folder=f".protocols/{protocol.name}",
        description=protocol.description,
        facts={
            "stack": list(facts.stack),
            "ci": project.ci_provider or facts.ci_provider,
            "notes": list(facts.notes),
        },
        checks=[
            {"name": check.name, "kind": check.kind, "command": list(check.argv)} for check in facts.checks
        ],
        files=shown,
        more_files=len(files) - len(shown),
        guidance=_guidance(repository, commit),
        answers=_answers(tx, protocol),
    )


def _nearest(paths: Mapping[str, Any]) -> list[str]:
    """As many paths as fit, those with the fewest directories first."""
    shown: list[str] = []
    room = _MOST_CHARACTERS
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        room -= len(path) + 1
        if room < 0 or len(shown) == _MOST_FILES:
            break
        shown.append(path)
    return sorted(shown)


def _guidance(repository: Repository, commit: str) -> str | None:
    try:
        return decoded(repository.read_file(commit, GUIDANCE))
    except NotFound:
        return None


def _answers(tx: Transaction, protocol: Protocol) -> list[dict[str, Any]]:
    """What people answered about the project or about this protocol, the newest first."""
    own = list_clarifications(tx, run_id=protocol.run_id, limit=_MOST_QUESTIONS)
    of_project = list_clarifications(tx, project_id=protocol.project_id, limit=_MOST_QUESTIONS)
    asked = [*own, *(each for each in of_project if each.run_id is None)]
    answered = sorted((each for each in asked if not each.open), key=_when, reverse=True)
    return [{"question": each.question, "answer": each.answer} for each in answered[:_MOST_ANSWERS]]


def _when(clarification: Clarification) -> int:
    return clarification.answered_at or 0


# The most characters of what others wrote; what is longer is cut.
_LONGEST_REQUEST = 40_000
_LONGEST_TEXT = 60_000


@cache
def planner_rules() -> str:
    """How a plan is made."""
    return _text("planner.md")


@cache
def decomposer_rules() -> str:
    """How a step is taken apart."""
    return _text("decomposer.md")


def plan_prompt(
    sight: RepositoryView, engines: Iterable[str], before: Tried | None, *, with_schema: bool
) -> str:
    """The question for a plan. `before` is the one that cannot be used."""
    form = f"type(scope): subject [protocol-{sight.number:04d}/XX]"
    parts = [
        _part("The change that is wanted", (sight.description or sight.name)[:_LONGEST_REQUEST]),
        _part(
            "The protocol, whose files will lie in its folder", {"name": sight.name, "folder": sight.folder}
        ),
        _part("The form of every commit message; XX is the number of the step", form),
        _part("What is known of the repository", sight.facts),
        _part("The checks that every step must pass, besides a review", sight.checks)
        if sight.checks
        else "No checks of this repository are known: let 00-setup.md find out how its tests are run.",
        _files(sight),
        _part("Engines that a step may name", sorted(engines)),
    ]
    if sight.guidance is not None:
        title = "What this repository says about plans; follow it where it does not contradict the rules"
        parts.append(_part(title, sight.guidance[:_LONGEST_TEXT]))
    if sight.answers:
        parts.append(_part("Questions that people have answered", sight.answers))
    return "\n\n".join([*parts, *_schema(PLAN_SCHEMA, shown=with_schema), *_repair(before, "plan")])


def step_prompt(
    sight: RepositoryView, plan: ProtocolPlan, step: PlannedStep, before: Tried | None, *, with_schema: bool
) -> str:
    """The question for one step in smaller tasks."""
    parts = [
        _part("The plan", plan.plan_md[:_LONGEST_TEXT]),
        _part("The step", {"file": step.file, "content": step.content[:_LONGEST_TEXT]}),
        _part("The checks that it must pass, besides a review", sight.checks),
        _files(sight),
    ]
    return "\n\n".join([*parts, *_schema(STEP_SCHEMA, shown=with_schema), *_repair(before, "file")])


def _part(title: str, value: Any) -> str:
    return f"{title}:\n\n{_as_json(value)}"


def _files(sight: RepositoryView) -> str:
    title = "Files of the repository" + (f", without {sight.more_files:,} more" if sight.more_files else "")
    return (
        f"{title}, one on each line:\n\n{_lines(sight.files)}" if sight.files else "The repository is empty."
    )


def _lines(paths: Sequence[str]) -> str:
    return "\n".join(map(_as_json, paths))


def _schema(schema: Mapping[str, Any], *, shown: bool) -> list[str]:
    wanted = "Answer with one JSON object that fits this JSON Schema, and with nothing else"
    return [_part(wanted, schema)] if shown else []


def _repair(before: Tried | None, what: str) -> list[str]:
    if before is None:
        return []
    listed = "\n".join(f"- {problem}" for problem in before.problems)
    parts = [f"Your last answer:\n\n{before.answer}"] if before.answer else []
    return [*parts, f"It cannot be used:\n\n{listed}\n\nGive the whole {what} again, corrected."]


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(name: str) -> str:
    return files("ratchet.protocols.planning").joinpath(name).read_text(encoding="utf-8")
