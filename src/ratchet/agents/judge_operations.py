"""The operations on what judges an agent: approvals of its changes, evals, and recorded calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from ratchet.agents import views
from ratchet.agents.contract import Role
from ratchet.agents.operations import AgentName, Server, VersionFilter
from ratchet.agents.views import WholeAgent
from ratchet.kernel import Misuse, NotFound
from ratchet.ledger import evals as rows
from ratchet.ledger.agents import get_agent
from ratchet.ledger.questions import Approval
from ratchet.operations import (
    Listing,
    McpTool,
    Param,
    Window,
    described,
    filled,
    line_of,
    number_of,
    operation,
)
from ratchet.runtime.call import Call
from ratchet.runtime.operations.approvals import By, Comment

if TYPE_CHECKING:
    from ratchet.agents.checks.evals import EvalCase

# Who decides is known where a model asks: the record must not rest on what it says.
_WITHOUT = frozenset({"by"})


class ApprovalMode(StrEnum):
    """When a person is asked about a change of an agent; `settings` leaves it to `agents.approval`."""

    NEVER = "never"
    BREAKING = "breaking"
    ALWAYS = "always"
    SETTINGS = "settings"


OfRun = Annotated[int | None, number_of("The change of this run, where several wait.", "RUN", "--run")]


@operation(
    "agent approve",
    "POST /agents/{name}/approve",
    tool=McpTool(
        "approve_agent_change",
        "Approve a change of an agent",
        without=_WITHOUT,
        destructive=True,
        queues=True,
    ),
    examples=["ratchet agent approve greeter", 'ratchet agent approve greeter --comment "shout was unused"'],
    see=["agent show", "agent refuse", "approval show"],
    done="The change by run {it.run_id} is {it.status}",
)
def approve(
    call: Call, name: AgentName, run_id: OfRun = None, comment: Comment = None, by: By = None
) -> Approval:
    """Approve the change of an agent that waits; it is made and promoted.

    A decision is final. A worker (`ratchet worker` or `ratchet serve`) does what is left of the run.
    """
    return _decide(call, name, run_id, comment, by, approved=True)


@operation(
    "agent refuse",
    "POST /agents/{name}/refuse",
    tool=McpTool(
        "refuse_agent_change", "Refuse a change of an agent", without=_WITHOUT, destructive=True, queues=True
    ),
    examples=['ratchet agent refuse greeter --comment "callers still use count"'],
    see=["agent show", "agent approve", "approval show"],
    done="The change by run {it.run_id} is {it.status}",
)
def refuse(
    call: Call, name: AgentName, run_id: OfRun = None, comment: Comment = None, by: By = None
) -> Approval:
    """Refuse the change of an agent that waits; the current version stays.

    A decision is final. Say with new feedback what is wanted instead.
    """
    return _decide(call, name, run_id, comment, by, approved=False)


def _decide(
    call: Call, name: str, run_id: int | None, comment: str | None, by: str | None, *, approved: bool
) -> Approval:
    from ratchet.agents.approval import decide_change

    with call.write() as tx:
        return decide_change(
            tx,
            call.runtime,
            name,
            approved=approved,
            by=by or call.person,
            run_id=run_id,
            comment=comment,
        )


@operation(
    "agent approval",
    "POST /agents/{name}/approval",
    tool=McpTool("set_agent_approval", "Set when changes of an agent are approved", repeatable=True),
    examples=["ratchet agent approval greeter always", "ratchet agent approval greeter settings"],
    see=["agent approve", "agent refuse"],
    done=lambda it: f"changes of {it.name} are approved as `{it.approval or 'agents.approval'}` says",
)
def approval(
    call: Call,
    name: AgentName,
    mode: Annotated[
        ApprovalMode,
        Param(
            "never: what breaks the contract is refused; breaking: a person is asked then; always: about every change;"
            " settings: as agents.approval says.",
            argument=True,
        ),
    ],
) -> WholeAgent:
    """Say when a person is asked before a change of an agent is kept."""
    from ratchet.agents.approval import choose_mode

    with call.write() as tx:
        choose_mode(tx, name, None if mode is ApprovalMode.SETTINGS else str(mode))
    with call.read() as tx:
        return views.one_agent(tx, call.home, call.settings.agents, name)


def parsed(_call: Call, text: str) -> dict[str, Any]:
    """A JSON object that was typed."""
    from ratchet.agents.checks.evals import arguments_of

    return arguments_of(text)


_READ = "ratchet.agents.judge_operations:parsed"
EvalNumber = Annotated[int, number_of("The number of an eval.", "EVAL")]
ToolName = Annotated[str, line_of("A tool that `ratchet agent tools` lists.", "TOOL", argument=True)]
Arguments = Annotated[
    dict[str, Any] | None,
    Param("All arguments as one JSON object.", flag="--arguments", metavar="JSON", read=_READ),
]
Expected = Annotated[
    dict[str, Any] | None,
    Param(
        "What the answer must be, as a JSON object: equals, contains, lacks, has, fails, within_ms. If not given, the"
        " tool must only not fail.",
        metavar="JSON",
        read=_READ,
    ),
]
Note = Annotated[str | None, Param("Why it is there, for people.", metavar="TEXT", longest=2_000)]


@dataclass(frozen=True, slots=True)
class EvalAnswer:
    """A call of a tool, and what its answer must be."""

    id: int
    server: str
    tool: str
    arguments: Any
    expect: Any
    note: str | None
    call_id: int | None = field(metadata=described("the recorded call that it was made from"))
    created_by: str
    created_at: int


@dataclass(frozen=True, slots=True)
class EvalsAnswer:
    """How a version answered the evals; `hash` stands for all of them, and is in the verdict of every change."""

    agent: str
    version: str
    commit: str
    passed: bool
    hash: str
    results: list[Any]


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """A call that a client made; one that is not whole had something hidden or cut."""

    id: int
    commit: str
    server: str
    tool: str
    arguments: Any
    result: Any
    outcome: str
    milliseconds: int
    is_whole: bool
    created_at: int


@operation(
    "agent eval add",
    "POST /agents/{name}/evals",
    tool=McpTool("add_agent_eval", "Add an eval of an agent"),
    examples=[
        """ratchet agent eval add greeter greet --arguments '{"name": "Ada"}' --expect '{"contains": "Ada"}'""",
    ],
    see=["agent eval run", "agent eval record"],
    done="Eval {it.id} is added: every change of the agent is held to it",
    status=201,
)
def add_eval(
    call: Call,
    name: AgentName,
    tool: ToolName,
    arguments: Arguments = None,
    expect: Expected = None,
    server: Server = Role.RUNNER,
    note: Note = None,
) -> EvalAnswer:
    """Add a call that every version of an agent must answer as you say.

    Evals lie in the ledger, where no engine can write. A change is made only if the new version answers all of them.
    """
    from ratchet.agents.checks.evals import check_expect

    wanted = check_expect(expect or {})
    with call.write() as tx:
        agent = get_agent(tx, name)
        _check_room(rows.list_evals(tx, agent.id))
        made = rows.add_eval(
            tx,
            agent.id,
            server=str(server),
            tool=tool,
            arguments=arguments or {},
            expect=wanted,
            by=call.person,
            note=note,
        )
        tx.event("agent.eval", message=f"{name} {tool}", data={"agent": name, "eval": made.id, "added": True})
    return filled(EvalAnswer, made)


def _check_room(known: list[rows.AgentEval]) -> None:
    from ratchet.agents.checks.evals import MOST_EVALS

    if len(known) >= MOST_EVALS:
        raise Misuse(f"an agent has at most {MOST_EVALS} evals", hint="remove some that say the same")


@operation(
    "agent eval list",
    "GET /agents/{name}/evals",
    tool=McpTool("list_agent_evals", "List the evals of an agent"),
    examples=["ratchet agent eval list greeter"],
    see=["agent eval add", "agent eval run"],
    columns={
        "eval": "id",
        "server": "server",
        "tool": "tool",
        "arguments": "arguments",
        "expect": "expect",
        "by": "created_by",
        "added": "created_at",
        "note": "note",
    },
    empty="It has no evals. `ratchet agent eval add` adds one.",
)
def list_evals(call: Call, name: AgentName) -> Listing[EvalAnswer]:
    """List the evals of an agent, in the order in which they are made."""
    with call.read() as tx:
        found = rows.list_evals(tx, get_agent(tx, name).id)
    return Listing([filled(EvalAnswer, each) for each in found])


@operation(
    "agent eval remove",
    "DELETE /agents/{name}/evals/{eval_id}",
    tool=McpTool("remove_agent_eval", "Remove an eval of an agent", destructive=True),
    examples=["ratchet agent eval remove greeter 3"],
    see=["agent eval list"],
    done="Eval {it.id} is removed",
    status=204,
)
def remove_eval(call: Call, name: AgentName, eval_id: EvalNumber) -> EvalAnswer:
    """Remove an eval of an agent: changes are not held to it any more."""
    with call.write() as tx:
        removed = rows.remove_eval(tx, get_agent(tx, name).id, eval_id)
        data = {"agent": name, "eval": eval_id, "added": False}
        tx.event("agent.eval", message=f"{name} {removed.tool}", data=data)
    return filled(EvalAnswer, removed)


@operation(
    "agent eval record",
    "POST /agents/{name}/calls/{call_id}/eval",
    tool=McpTool("record_agent_eval", "Make an eval of a recorded call"),
    examples=["ratchet agent eval record greeter 12"],
    see=["agent calls", "agent eval add"],
    done="Eval {it.id} is added: every change of the agent is held to it",
    status=201,
)
def record_eval(
    call: Call,
    name: AgentName,
    call_id: Annotated[int, number_of("The number of a recorded call.", "CALL")],
    expect: Expected = None,
    note: Note = None,
) -> EvalAnswer:
    """Make an eval of a call that really happened, with the answer that it had.

    With --expect another answer is wanted: that of a call which went wrong, say. 422 for a call of which something was
    hidden or cut.
    """
    from ratchet.agents.checks.evals import check_expect, expected_of

    with call.write() as tx:
        agent = get_agent(tx, name)
        found = rows.get_call(tx, agent.id, call_id)
        if not found.is_whole:
            raise Misuse(
                f"call {call_id} is not whole: something was hidden or cut",
                hint="write it with `ratchet agent eval add`",
            )
        _check_room(rows.list_evals(tx, agent.id))
        made = rows.add_eval(
            tx,
            agent.id,
            server=found.server,
            tool=found.tool,
            arguments=found.arguments,
            expect=check_expect(expected_of(found.result or {}) if expect is None else expect),
            by=call.person,
            note=note,
            call_id=call_id,
        )
        data = {"agent": name, "eval": made.id, "added": True}
        tx.event("agent.eval", message=f"{name} {made.tool}", data=data)
    return filled(EvalAnswer, made)


@operation(
    "agent eval run",
    "POST /agents/{name}/evals/run",
    tool=McpTool("run_agent_evals", "Run the evals of an agent", outside=True),
    examples=["ratchet agent eval run greeter", "ratchet agent eval run greeter --version 0.1.0 --json"],
    see=["agent eval list"],
    done=lambda it: (
        "\n".join(
            f"{'passed' if each['passed'] else 'failed'}  {each['call']}"
            + (f": {each['reason']}" if each["reason"] else "")
            for each in it.results
        )
        or f"{it.agent} has no evals"
    ),
    succeeded=lambda it: it.passed,
)
async def run_evals(call: Call, name: AgentName, version: VersionFilter = None) -> EvalsAnswer:
    """Run the evals of an agent against a version, in the sandbox and on a copy of its state.

    They run in their order, on the same servers.
    """
    import asyncio

    from ratchet.agents.checks.evals import EvalCase, hash_of
    from ratchet.agents.traffic import evaluate
    from ratchet.agents.versions import find_version

    def look() -> tuple[Any, list[EvalCase]]:
        with call.read() as tx:
            agent = get_agent(tx, name)
            wanted = find_version(tx, agent, version or "current")
            return wanted, [EvalCase.of(each) for each in rows.list_evals(tx, agent.id)]

    found, cases = await asyncio.to_thread(look)
    section: dict[str, Any] = {}
    settings = call.settings.agents
    passed = not cases or await evaluate(call, settings, name, found.commit, cases, section)
    results = section.get("results", [])
    return EvalsAnswer(name, found.version, found.commit, passed, hash_of(cases), results)


@operation(
    "agent calls",
    "GET /agents/{name}/calls",
    tool=McpTool("list_agent_calls", "List the recorded calls of an agent"),
    examples=["ratchet agent calls greeter", "ratchet agent calls greeter --tool greet --json"],
    see=["agent eval record"],
    columns={
        "call": "id",
        "made": "created_at",
        "version": lambda call: call.commit[:12],
        "tool": "tool",
        "outcome": "outcome",
        "ms": "milliseconds",
        "arguments": "arguments",
        "answer": lambda call: " ".join(str((call.result or {}).get("text") or "").split()),
    },
    empty="No calls are recorded. `agents.record_share` says how many are.",
)
def calls(
    call: Call,
    window: Window,
    name: AgentName,
    tool: Annotated[str | None, line_of("Only those of this tool.", "TOOL")] = None,
) -> Listing[CallAnswer]:
    """List the calls that clients made of an agent, newest first, with arguments and answers.

    Secrets are hidden and long ones cut; `agents.records_kept` of them are kept.
    """
    with call.read() as tx:
        agent = get_agent(tx, name)
        found = rows.list_calls(tx, agent.id, before=window.before, limit=window.one_more, tool=tool)
    return window.cut([filled(CallAnswer, each) for each in found])


@dataclass(frozen=True, slots=True)
class CertificateAnswer:
    """What a version was promoted on."""

    agent: str
    version: str
    commit: str
    parent: str | None
    created_at: int
    diff_sha256: str = field(
        metadata=described("of the patch from its parent, as `ratchet agent diff` shows it")
    )
    proposed_by: dict[str, Any] = field(metadata=described("run, attempt, session, engine and model"))
    judges: list[Any] = field(metadata=described("each with its hash, its verdict and its report"))
    checks: dict[str, Any] = field(metadata=described("how each check ended"))
    findings: list[str] = field(metadata=described("what of the contract it broke, with an approval"))
    approval: dict[str, Any] | None
    evals_sha256: str | None
    evals: list[Any]
    replay: dict[str, Any]
    state: dict[str, Any] = field(metadata=described("the state before and after, compared"))
    cost: dict[str, Any]
    simulated: bool


@operation(
    "agent certificate",
    "GET /agents/{name}/certificate",
    tool=McpTool("get_agent_certificate", "Show what a version of an agent was promoted on"),
    examples=["ratchet agent certificate greeter", "ratchet agent certificate greeter 0.1.0 --json"],
    see=["agent versions", "agent diff"],
    columns={
        "agent": "agent",
        "version": "version",
        "commit": "commit",
        "parent": "parent",
        "made": "created_at",
        "diff sha256": "diff_sha256",
        "proposed by": lambda it: ", ".join(
            f"{key} {value}" for key, value in it.proposed_by.items() if value
        ),
        "judged by": lambda it: "\n".join(
            f"{each['judge']} {each['judge_hash'][:12]}: {each['outcome']}: {each['reason']}"
            for each in it.judges
        ),
        "findings": lambda it: "\n".join(it.findings) or None,
        "approved by": lambda it: it.approval and it.approval["by"],
        "evals": lambda it: f"{sum(each['passed'] for each in it.evals)} of {len(it.evals)} passed",
        "replay": lambda it: "\n".join(
            [
                f"{it.replay.get('calls', 0)} calls, {len(it.replay.get('differences', ()))} answered otherwise",
                *views.answered_otherwise(it.replay),
            ]
        ),
        "cost": lambda it: (
            f"{it.cost['input_tokens'] + it.cost['output_tokens']} tokens, ${it.cost['cost_microusd'] / 1e6:.4f}"
        ),
        "simulated": lambda it: it.simulated or None,
    },
)
def certificate(
    call: Call,
    name: AgentName,
    version: Annotated[
        str | None,
        line_of("A commit, a number or a tag; the current version if not given.", "VERSION", argument=True),
    ] = None,
) -> CertificateAnswer:
    """Show what a version of an agent was promoted on.

    Its parent, the hash of the change, who proposed it, each judge with its hash, the results of evals and replay, who
    approved it, and what it cost. 404 for a version that was made before there were certificates.
    """
    from ratchet.agents.versions import find_version

    with call.read() as tx:
        found = find_version(tx, get_agent(tx, name), version or "current")
    if found.certificate is None:
        raise NotFound("certificate of version", f"{found.version} of {name}")
    known = {
        key: value
        for key, value in found.certificate.items()
        if key in CertificateAnswer.__dataclass_fields__
    }
    return CertificateAnswer(
        agent=name,
        **{**known, "version": found.version, "commit": found.commit, "created_at": found.created_at},
    )


OPERATIONS = (
    approve,
    refuse,
    approval,
    add_eval,
    list_evals,
    remove_eval,
    record_eval,
    run_evals,
    calls,
    certificate,
)
