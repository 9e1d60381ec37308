"""The overseer's door, for every face: ask for a workflow in a sentence.

Everything is looked at before anything is recorded. The work itself is a run, which any worker can carry.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ratchet.engines.registry import EngineContext, open_engine, require_model
from ratchet.flowkit.spec import WORKFLOW_ID, WorkflowSpec, name_problem
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Conflict, Misuse, RatchetError, RunId, RunStatus, Usage, sendable
from ratchet.ledger import EventFilter, Run, follow_async
from ratchet.ledger.events import last_id
from ratchet.ledger.runs import get_run
from ratchet.ledger.workflows import find_workflow
from ratchet.runtime import Runtime, start_run
from ratchet.workflows.jobs import PLAN
from ratchet.workflows.operations import LONGEST_SENTENCE, RUN_KIND
from ratchet.workflows.saved import unwritten

SIMULATED = "simulated"
"""The origin of a workflow that was planned by a recording."""
_SHOWN = 30


@dataclass(frozen=True, slots=True)
class Reused:
    """A plan that was there already: `sentence` is what it was made for, `reason` why it was taken."""

    workflow: str
    sentence: str
    likeness: float
    exact: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A saved workflow and how it came about.

    `template` is the workflow that the overseer was shown as an example, `repaired` what was wrong with plans that were
    sent back, and `notes` what did not work on the way and did not matter for the plan.
    """

    run_id: int
    workflow: str
    version: str
    hash: str
    spec: Mapping[str, Any]
    reused: Reused | None = None
    template: str | None = None
    tools_generated: tuple[str, ...] = ()
    tools_kept: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    simulated: bool = False

    @property
    def data(self) -> dict[str, Any]:
        """As the run's result: JSON, without what the run knows itself."""
        data = asdict(self)
        del data["run_id"]
        return data


class WorkflowPlanFailed(RatchetError):
    """There is no workflow for the sentence. `problems` has one sentence for each thing that was wrong at last."""

    http_status = 502

    def __init__(self, run_id: int, problems: tuple[str, ...], reason: str) -> None:
        super().__init__(
            f"the plan of run {run_id} failed: {reason}",
            hint="say it in other words, name the tools to use, or use a stronger model",
        )
        self.run_id = run_id
        self.problems = problems


def planned_of(run: Run) -> Planned:
    """What a run of the overseer came to. Raises `PlanFailed`, or `Conflict` while it has not ended."""
    if run.status in (RunStatus.FAILED, RunStatus.CANCELLED):
        problems = (run.result or {}).get("problems", ())
        raise WorkflowPlanFailed(run.id, tuple(problems), run.reason or str(run.status))
    if run.status is not RunStatus.COMPLETED:
        why = f": {run.reason}" if run.reason else ""
        raise Conflict(
            f"run {run.id} is {run.status}, so there is no plan yet{why}", hint="wait for it to end"
        )
    data = dict(run.result)
    data["reused"] = None if data["reused"] is None else Reused(**data["reused"])
    data["usage"] = Usage(**data["usage"])
    for name in ("tools_generated", "tools_kept", "repaired", "notes"):
        data[name] = tuple(data[name])
    return Planned(run_id=run.id, **data)


def start_plan(
    runtime: Runtime,
    sentence: str,
    *,
    name: str | None = None,
    engine: str | None = None,
    model: str | None = None,
    reuse: bool = True,
    keep_tools: bool = False,
    simulated: bool = False,
    actor: str = "ratchet",
    request_id: str | None = None,
) -> RunId:
    """Begin to plan a workflow for `sentence`; the run that does it. Raises `Misuse` for what can never work, and
    `Missing` if no model is configured.

    It is saved under `name`, or if none is given under one of its own that nothing else has. With `reuse` a remembered
    plan may be taken instead. `keep_tools` puts tools that are written for it into the toolbox as well.
    """
    text = checked_sentence(sentence)
    if simulated and keep_tools:
        raise Misuse("a simulation puts no tools into the toolbox", hint="leave out one of the two")
    wanted = engine or runtime.settings.workflows.overseer
    surroundings = EngineContext(runtime.settings, runtime.home, os.environ)
    open_engine(wanted, surroundings)
    if name is not None:
        _check_name(name)
    require_model(wanted, model or runtime.settings.workflows.model, surroundings)
    spec = {
        "action": "plan",
        "sentence": text,
        "name": name,
        "engine": wanted,
        "model": model or runtime.settings.workflows.model,
        "reuse": reuse,
        "keep_tools": keep_tools,
    }
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        if name is not None:
            known = find_workflow(tx, name)
            if simulated and known is not None and known.origin != SIMULATED:
                raise Misuse(
                    f"the workflow {name} is real, so a simulation must not replace it",
                    hint="choose another name",
                )
        return start_run(
            tx,
            runtime,
            PLAN,
            kind=RUN_KIND,
            name=f"plan:{slug(text)}",
            spec=spec,
            simulated=simulated,
        )


def start_fill(
    runtime: Runtime,
    spec: WorkflowSpec,
    *,
    engine: str | None = None,
    model: str | None = None,
    simulated: bool = False,
    actor: str = "ratchet",
    request_id: str | None = None,
) -> RunId:
    """Begin to write the tools that the steps of a workflow ask for; the run that does it saves it under its name.

    Raises `Misuse` where there is nothing to write, and `Missing` if no model is configured.
    """
    if not unwritten(spec):
        raise Misuse(
            f"no step of {spec.workflow_id} waits for a tool to be written",
            hint="give a step `generate_tool: true` and a `description` of what its tool does",
        )
    wanted, chosen = engine or runtime.settings.workflows.overseer, model or runtime.settings.workflows.model
    surroundings = EngineContext(runtime.settings, runtime.home, os.environ)
    open_engine(wanted, surroundings)
    require_model(wanted, chosen, surroundings)
    data = {
        "action": "plan",
        "sentence": spec.description or spec.workflow_id,
        "name": spec.workflow_id,
        "engine": wanted,
        "model": chosen,
        "reuse": False,
        "keep_tools": False,
        "fill": write_spec(spec),
    }
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        name = f"plan:fill {spec.workflow_id}"
        return start_run(tx, runtime, PLAN, kind=RUN_KIND, name=name, spec=data, simulated=simulated)


async def plan_workflow(
    runtime: Runtime,
    sentence: str,
    *,
    name: str | None = None,
    engine: str | None = None,
    model: str | None = None,
    reuse: bool = True,
    keep_tools: bool = False,
    simulated: bool = False,
    actor: str = "ratchet",
    request_id: str | None = None,
) -> Planned:
    """As `start_plan`, and wait for what comes of it. Some worker, in this process or another, must be at work.

    Raises `PlanFailed` when there is no plan, and `Conflict` when the run was paused.
    """
    with runtime.ledger.read() as tx:
        after = last_id(tx.connection)
    run_id = start_plan(
        runtime,
        sentence,
        name=name,
        engine=engine,
        model=model,
        reuse=reuse,
        keep_tools=keep_tools,
        simulated=simulated,
        actor=actor,
        request_id=request_id,
    )
    events = follow_async(runtime.ledger, after, where=EventFilter(run_id=run_id))
    async with contextlib.aclosing(events):
        async for event in events:
            if event.type.startswith("run."):
                with runtime.ledger.read() as tx:
                    run = get_run(tx, run_id)
                if run.status.stands:
                    return planned_of(run)
    raise AssertionError("following events never ends by itself")


def slug(sentence: str) -> str:
    """A name made of the first words of a sentence."""
    words = re.sub(r"[^a-z0-9]+", "_", sentence.split(".")[0].lower()).strip("_")
    return words[:_SHOWN].strip("_") or "workflow"


def checked_sentence(sentence: str) -> str:
    """What was asked for, without what no text has. Raises `Misuse` for what is empty, too long or an accident."""
    text = sendable(sentence).replace("\0", "").strip()
    if not text:
        raise Misuse(
            "there is nothing to plan: the sentence is empty", hint="say what the workflow should do"
        )
    if len(text) > LONGEST_SENTENCE:
        raise Misuse(
            f"the sentence has {len(text):,} characters, and at most {LONGEST_SENTENCE:,} are taken",
            hint="say what the workflow should do, and give it the rest as an input when it runs",
        )
    if (odd := accident(text)) is not None:
        raise Misuse(
            f"{text[:_SHOWN]!r} {odd}, so nothing is planned",
            hint='say in a sentence what the workflow should do, such as "Summarise a text in three lines"',
        )
    return text


_WORD = re.compile(r"[^\W\d_]+")
_GREETINGS = frozenset(
    (
        *("hi", "hello", "hey", "hallo", "hola", "yo", "there", "good", "morning", "evening", "night", "bye"),
        *(
            "test",
            "testing",
            "tests",
            "foo",
            "bar",
            "baz",
            "ping",
            "asdf",
            "jkl",
            "qwer",
            "qwerty",
            "qwertz",
            "blah",
        ),
        *(
            "ok",
            "okay",
            "yes",
            "no",
            "thanks",
            "thank",
            "you",
            "very",
            "much",
            "please",
            "abc",
            "hm",
            "hmm",
            "lol",
        ),
    )
)
_SHORTEST_MASH = 6


def accident(sentence: str) -> str | None:
    """What makes a sentence one that was sent by accident, if it is; no model is asked for such a one."""
    words = [word.casefold() for word in _WORD.findall(sentence)]
    if not words:
        return "has no word in it"
    if all(word in _GREETINGS for word in words):
        return "does not say what to do"
    if all(_is_mash(word) for word in words):
        return "is not made of words"
    return None


def _is_mash(word: str) -> bool:
    """One letter, also again and again, or many letters without a vowel. Words of other scripts are words."""
    if not word.isascii():
        return False
    return len(set(word)) == 1 or (len(word) >= _SHORTEST_MASH and not set(word) & set("aeiouy"))


def _check_name(name: str) -> None:
    problem = name_problem("the name", name, WORKFLOW_ID)
    if problem is not None:
        raise Misuse(f"the workflow cannot be named so: {problem}", hint="choose another name")
