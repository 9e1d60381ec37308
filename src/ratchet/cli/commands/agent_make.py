"""`ratchet agent create`, `feedback` and `propose`"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ratchet.agents import learning
from ratchet.agents import operations as of_agents
from ratchet.agents import production_operations as of_production
from ratchet.agents.architect import (
    AgentRequest,
    check_creation,
    check_feedback,
    create_agent,
    send_feedback,
)
from ratchet.agents.checks.evals import arguments_of
from ratchet.agents.contract import Severity
from ratchet.agents.views import outcome
from ratchet.cli.command import command
from ratchet.cli.foreground import INTERRUPTED, Foreground, foreground
from ratchet.cli.operation import taking
from ratchet.cli.output import confirm, note, print_document
from ratchet.cli.params import agent_argument, detach_option, from_file_option, given_text
from ratchet.cli.progress import progress
from ratchet.cli.words import lines, one_line
from ratchet.engines.engine import Failure
from ratchet.kernel import Missing, RunStatus
from ratchet.operations import record

if TYPE_CHECKING:
    from ratchet.agents.views import AgentOutcome, WholeAgent
    from ratchet.cli.session import CliSession


@command(
    examples=[
        'ratchet agent create greeter "Greet people by name, in their own language."',
        "ratchet agent create greeter --from-file wishes.txt --engine codex",
        'ratchet agent create greeter "Greet people." --detach',
    ],
    see=["agent call", "agent feedback"],
)
@click.argument("name", metavar="NAME", help="What to call it.")
@click.argument("what", metavar="[WHAT]", required=False, help="What it should do, in words.")
@taking(of_agents.create, "engine", "model", "simulated")
@detach_option
@from_file_option
def create(
    session: CliSession,
    /,
    name: str,
    what: str | None,
    file: str | None,
    detach: bool,
    **options: Any,
) -> int | None:
    """Make an agent from a description of what it should do.

    An engine writes a Runner, which has the agent's tools, and a Tuner, which takes feedback: two MCP servers. Only if
    they start, list their tools and pass their tests does the agent become version 0.0.0; else nothing of it is kept
    but a directory to look at. NAME is made of lower-case letters, digits, '.', '_' and '-'.

    Ctrl-C pauses the work; `ratchet runs resume RUN` hands it to a worker. Exits with 0 when the agent is ready, 1 when
    it failed, 2 for misuse, 3 when the engine is missing.
    """
    loaded = session.load()
    description = given_text(what, file, most_bytes=loaded.settings.agents.feedback_bytes)
    with foreground(loaded) as here:
        wanted = AgentRequest(name=name, description=description, **options)
        here.check(partial(check_creation, here.runtime, wanted), detach=detach)
        run_id = create_agent(here.runtime, wanted, actor="cli")
        return _carry(session, here, name, run_id, f"making {name}", detach=detach)


@command(
    examples=[
        'ratchet agent feedback greeter "Be less formal."',
        'ratchet agent feedback greeter "It crashes on an empty name." --severity critical',
        'ratchet agent feedback greeter "Greet people as sailors do." --about greet',
        'ratchet agent feedback greeter "Speak Latin, too." --version 0.1.0',
        "git log -5 | ratchet agent feedback greeter --from-file -",
    ],
    see=["agent versions", "agent diff", "agent rollback"],
)
@agent_argument
@click.argument("text", metavar="[TEXT]", required=False, help="What was wrong, in words.")
@taking(of_agents.feedback, "severity", "version", "about", "engine", "model", "simulated")
@detach_option
@from_file_option
def feedback(
    session: CliSession,
    /,
    name: str,
    text: str | None,
    file: str | None,
    severity: str,
    detach: bool,
    **options: Any,
) -> int | None:
    """Tell an agent what was wrong; it learns, or is rewritten.

    The Architect works on a copy and decides: nothing, a change of the state, or a change of the code. New code must
    pass its tests, start, and answer before it becomes the next version; until then, and if it does not, the current
    version stays as it was. A change by which a tool answers a recorded call otherwise waits for your approval, unless
    the feedback is --about that tool. Feedback on one agent is taken one after the other.

    VERSION is a commit or its beginning, a number such as 0.1.0, a tag such as v0.1.0, or `latest`. Exits with 0 when
    something was decided, 1 when the change failed.
    """
    loaded = session.load()
    message = given_text(text, file, most_bytes=loaded.settings.agents.feedback_bytes)
    with foreground(loaded) as here:
        named = {"engine": options["engine"], "model": options["model"]}
        here.check(partial(check_feedback, here.runtime, name, message, **named), detach=detach)
        run_id = send_feedback(
            here.runtime, name, message, severity=Severity(severity), actor="cli", **options
        )
        return _carry(session, here, name, run_id, f"{name} takes feedback", detach=detach)


@command(
    examples=[
        "ratchet agent propose greeter 3",
        """ratchet agent propose greeter 3 --expect '{"contains": "hello"}'""",
    ],
    see=["agent incidents", "agent certificate"],
)
@agent_argument
@taking(of_production.propose, "incident_id", "expect", "arguments", "engine", "model")
@detach_option
def propose(
    session: CliSession,
    /,
    name: str,
    incident_id: int,
    expect: str | None,
    arguments: str | None,
    detach: bool,
    **named: Any,
) -> int | None:
    """Have an incident fixed: a change that must answer its call, which becomes an eval.

    The engine gets what went wrong, with the input. The new version is used only if it passes all that any change
    must pass, and answers that call: without a failure, or as --expect says. Once it is promoted, the call is an eval
    of the agent. Exits with 0 when something was decided, 1 when the change failed.
    """
    loaded = session.load()
    given: dict[str, Any] = {
        key: None if text is None else arguments_of(text)
        for key, text in (("expect", expect), ("arguments", arguments))
    }
    with foreground(loaded) as here:
        here.check(partial(check_feedback, here.runtime, name, "fix it", **named), detach=detach)
        run_id = learning.propose(here.runtime, name, incident_id, actor="cli", **given, **named)
        return _carry(session, here, name, run_id, f"fixing incident {incident_id}", detach=detach)


def _carry(
    session: CliSession, here: Foreground, name: str, run_id: int, what: str, *, detach: bool
) -> int | None:
    if detach:
        confirm(session, {"agent": name, "run": run_id}, f"Run {run_id} waits for a worker.")
        return None
    with progress(what, quiet=session.json) as hear:
        ended = here.work_on(run_id, hear, quiet=session.json)
    with here.ledger.read() as tx:
        document = outcome(tx, here.runtime.home, here.runtime.settings.agents, run_id)
    if session.json:
        print_document(record(document))
    elif ended.status is RunStatus.COMPLETED:
        _tell(name, document)
    else:
        _tell_why_not(name, document)
    if here.interrupted:
        return INTERRUPTED
    if ended.status is RunStatus.COMPLETED:
        return 0
    lacks_engine = (document.result or {}).get("failure") == Failure.MISSING
    return Missing.exit_code if lacks_engine else 1


def _tell(name: str, document: AgentOutcome) -> None:
    result = document.result or {}
    print(f"{name}: {_decision(document, result)}")
    if result.get("summary"):
        print(lines(result["summary"]))
    if document.answered_otherwise:
        note("Recorded calls that it answers otherwise than the version before:")
        for each in document.answered_otherwise:
            note(f"  {one_line(each)}")
    if result.get("decision") == "created" and document.agent is not None:
        _print_service(document.agent)
    if document.used_recording:
        note("This is a simulation: a recorded session was used.")


def _decision(document: AgentOutcome, result: dict[str, Any]) -> str:
    short = (result.get("commit") or "")[:12]
    match result.get("decision"):
        case "created":
            return f"version {result['version']} is ready ({short})"
        case "code":
            beside = "" if result.get("promoted") else "; it is kept beside the current version"
            return f"code {document.from_version} → {result['version']} ({short}){beside}"
        case "state":
            return "its state has changed, its code has not"
        case _:
            return "nothing to change"


def _print_service(agent: WholeAgent) -> None:
    from ratchet.cli.tables import print_fields

    address, current = agent.address, agent.current
    print_fields(
        {
            "tools": ", ".join(current.tools) if current else None,
            "runner": address.runner,
            "tuner": address.tuner,
        }
    )
    if not address.is_up:
        note("Nothing answers there yet; `ratchet serve` does. `ratchet agent call` works without it.")


def _tell_why_not(name: str, document: AgentOutcome) -> None:
    run, quarantine = document.run, (document.result or {}).get("quarantine")
    print(f"{name}: run {run} is {document.status}")
    if document.reason:
        print(lines(document.reason))
    if quarantine:
        note(f"What was made lies in {one_line(quarantine)}")
    if document.agent is not None and any(each.run == run for each in document.agent.waiting):
        approval = next(each.approval for each in document.agent.waiting if each.run == run)
        note(f"`ratchet approval show {approval}` shows the change.")
        note(f"`ratchet agent approve {name}` makes it, `ratchet agent refuse {name}` does not.")
        if "replay: " in (document.reason or ""):
            note("With --about TOOL the feedback lets a tool answer recorded calls otherwise beforehand.")
    elif document.status in ("paused", "blocked"):
        note(f"`ratchet runs resume {run}` hands it to a worker, `ratchet runs cancel {run}` ends it.")
        note("`ratchet engine check` shows which engines could be used now, and how to fix the others.")
    elif document.action == "create":
        advice = "Say more exactly what is wanted"
        if (document.result or {}).get("failure") is not None:
            advice = (
                "The engine failed, not the description: `ratchet engine check` looks at it. Wait or fix it"
            )
        note(f"{advice}, and create {name} again; `ratchet runs show {run}` has the rest.")
    else:
        note(f"The current version stays as it was; `ratchet runs show {run}` has the rest.")
