"""Ask the Architect for an agent, or for a change of one: the same functions for every face.

Everything is looked at before anything is recorded. The work itself is a run, and the runs of one agent come one after
the other.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.agents.contract import Severity, check_name, place_of
from ratchet.agents.jobs import KIND, RUN_KIND
from ratchet.agents.versions import find_version
from ratchet.engines.preflight import require_engines
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.kernel import Conflict, Misuse, NotFound, RunId, sendable
from ratchet.ledger import Transaction
from ratchet.ledger import agents as rows
from ratchet.ledger.agents import AgentRow, AgentStatus
from ratchet.ledger.runs import list_runs
from ratchet.runtime import Runtime, start_run

# A longer text lies in the artifact store, and the run names it.
_INLINE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRequest:
    """An agent as a person asks for it."""

    name: str
    description: str
    engine: str | None = None
    model: str | None = None
    simulated: bool = False


def check_creation(runtime: Runtime, wanted: AgentRequest) -> None:
    """Look whether the agent could be written here and now, before anything is begun.

    Raises `NotReady`, and `Misuse` for what can never work.
    """
    check_name(wanted.name)
    checked_text(runtime, wanted.description, "what the agent should do")
    _require_engine(runtime, wanted.engine, wanted.model)


def check_feedback(
    runtime: Runtime, name: str, message: str, *, engine: str | None = None, model: str | None = None
) -> None:
    """The same for feedback: the agent has an engine of its own."""
    checked_text(runtime, message, "feedback")
    with runtime.ledger.read() as tx:
        known = rows.get_agent(tx, name)
    _require_engine(runtime, engine or known.engine, model or known.model)


def _require_engine(runtime: Runtime, engine: str | None, model: str | None) -> None:
    _check_engine(runtime, engine)
    require_engines(runtime, [(engine or runtime.settings.agents.engine, model)])


def create_agent(
    runtime: Runtime, wanted: AgentRequest, *, actor: str, request_id: str | None = None
) -> RunId:
    """Begin to make an agent. Raises `Misuse` for what can never work and `Conflict` when the name is taken."""
    check_name(wanted.name)
    text = checked_text(runtime, wanted.description, "what the agent should do")
    _check_engine(runtime, wanted.engine)
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        _give_up_abandoned(tx, wanted.name)
        with contextlib.suppress(NotFound):
            _check_not_blocked(*rows.with_blocked(tx, [rows.get_agent(tx, wanted.name)]))
        agent = rows.create_agent(
            tx,
            wanted.name,
            _shortened(text),
            engine=wanted.engine,
            model=wanted.model,
            simulated=wanted.simulated,
        )
        spec = {"action": "create", "agent": agent.name, "engine": wanted.engine, "model": wanted.model}
        return _start(runtime, tx, agent, text, spec, simulated=wanted.simulated)


def send_feedback(
    runtime: Runtime,
    name: str,
    message: str,
    *,
    actor: str,
    request_id: str | None = None,
    **more: Any,
) -> RunId:
    """Tell an agent what was wrong, or what is wanted; see `begin_feedback`."""
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        return begin_feedback(tx, runtime, name, message, **more)


def begin_feedback(
    tx: Transaction,
    runtime: Runtime,
    name: str,
    message: str,
    *,
    severity: Severity = Severity.NORMAL,
    version: str | None = None,
    source: str = "person",
    engine: str | None = None,
    model: str | None = None,
    simulated: bool = False,
    about: Sequence[str] = (),
    incident: Mapping[str, Any] | None = None,
) -> RunId:
    """Begin the run by which an agent is told something.

    Without a `version`, or with the one that is current now, it is about the agent: it is applied to whatever is
    current when its turn comes. With an older version it makes a variant of that one. The tools that it is `about` may
    answer recorded calls otherwise. Of an `incident` the number and the call are given, which the change must answer.
    """
    text = checked_text(runtime, message, "feedback")
    _check_engine(runtime, engine)
    [agent] = rows.with_blocked(tx, [rows.get_agent(tx, name)])
    _check_not_blocked(agent)
    if agent.status is not AgentStatus.READY:
        raise Conflict(
            f"the agent {name} is {agent.status}",
            hint="feedback is for an agent that is ready; wait for it",
        )
    if simulated and not agent.simulated:
        raise Misuse(
            f"the agent {name} is real, so a simulation must not change it", hint="leave out --simulated"
        )
    commit = None if version is None else find_version(tx, agent, version).commit
    _check_about(rows.get_version(tx, agent.id, commit or str(agent.current)), about)
    spec = {
        "action": "feedback",
        "agent": name,
        "version": None if commit == agent.current else commit,
        "given_on": commit or agent.current,
        "severity": Severity(severity),
        "source": source,
        "engine": engine or agent.engine,
        "model": model or agent.model,
        **({"about": sorted(set(about))} if about else {}),
        **({} if incident is None else {"incident": dict(incident)}),
    }
    run_id = _start(runtime, tx, agent, text, spec, simulated=simulated)
    data = {"agent": name, "severity": severity, "source": source, "on": spec["given_on"]}
    tx.event("agent.feedback", message=text[:500], run_id=run_id, data=data)
    return run_id


def message_of(runtime: Runtime, spec: dict[str, Any]) -> str:
    """The whole text that a run was started with."""
    stored = spec.get("message_artifact")
    return str(spec["message"]) if stored is None else runtime.ledger.artifacts.read(stored).decode()


def _start(
    runtime: Runtime, tx: Transaction, agent: AgentRow, text: str, spec: dict[str, Any], *, simulated: bool
) -> RunId:
    content = text.encode()
    long = len(content) > _INLINE_BYTES
    spec = {
        **spec,
        "agent_id": agent.id,
        "message": text[: _INLINE_BYTES // 4] if long else text,
        "message_artifact": hashlib.sha256(content).hexdigest() if long else None,
    }
    run_id = start_run(
        tx,
        runtime,
        KIND,
        kind=RUN_KIND,
        name=agent.name,
        spec=spec,
        simulated=simulated,
        # By its directory: another home on the same ledger has agents of its own.
        line=f"agent:{place_of(runtime.home, agent.name).root}",
    )
    if long:
        runtime.ledger.artifacts.put(
            tx, content, name="message.txt", media_type="text/plain", run_id=run_id, pinned=True
        )
    return run_id


def checked_text(runtime: Runtime, text: str, what: str) -> str:
    """The text as it is taken. Raises `Misuse` for one that is empty or too long."""
    plain = sendable(text).replace("\0", "").strip()
    if not plain:
        raise Misuse(f"{what} cannot be empty", hint="say it in a sentence or two")
    most = runtime.settings.agents.feedback_bytes
    if len(plain.encode()) > most:
        raise Misuse(
            f"{what} has {len(plain.encode())} bytes, and at most {most} are taken",
            hint="say what matters, or raise agents.feedback_bytes",
        )
    return plain


def _shortened(description: str) -> str:
    """As it is shown, and told with every later feedback; the run that makes the agent has all of it."""
    return description if len(description) <= _INLINE_BYTES else f"{description[:_INLINE_BYTES]} […]"


def _check_engine(runtime: Runtime, name: str | None) -> None:
    wanted = name or runtime.settings.agents.engine
    engine = open_engine(wanted, EngineContext(runtime.settings, runtime.home, os.environ))
    able = engine.capabilities
    if not able.edits_files or able.learns_scores:
        what = "follows scores, which an agent has none of" if able.learns_scores else "edits no files"
        raise Misuse(
            f"the engine {engine.name} {what}, so it cannot write an agent",
            hint="use codex, claude or another engine that does: `ratchet engine list`",
        )


def _check_about(version: rows.AgentVersion, about: Sequence[str]) -> None:
    tools = [str(each["name"]) for each in version.tools]
    unknown = next((each for each in about if each not in tools), None)
    if unknown is not None:
        raise Misuse(f"there is no tool {unknown[:200]!r}", hint=f"there are {', '.join(tools)}")


def _check_not_blocked(agent: AgentRow) -> None:
    if agent.status is AgentStatus.BLOCKED:
        raise Conflict(
            f"the creation of the agent {agent.name} is blocked: {agent.reason}",
            hint="change what the reason says, then resume that run with `ratchet runs resume`",
        )


def _give_up_abandoned(tx: Transaction, name: str) -> None:
    """An agent whose creation was cancelled or lost is no longer being made, and its name is free."""
    for run in list_runs(tx, kind=RUN_KIND, name=name, limit=1):
        if run.status.final:
            rows.give_up_creation(tx, name, run_id=run.id, reason=run.reason or f"its run {run.status}")
