"""The operations on agents."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from ratchet.agents import logs as log_files
from ratchet.agents import views
from ratchet.agents.contract import CALL_SECONDS, Role, Severity, ToolShape
from ratchet.agents.views import (
    AgentAnswer,
    AgentRunAnswer,
    ListedVersion,
    VersionComparison,
    WholeAgent,
    WholeVersion,
)
from ratchet.kernel import Misuse
from ratchet.ledger.agents import get_agent
from ratchet.ledger.runs import get_run
from ratchet.operations import (
    Listing,
    McpTool,
    NameWindow,
    Param,
    Window,
    described,
    filled,
    line_of,
    number_of,
    operation,
)
from ratchet.runtime.call import Call

if TYPE_CHECKING:
    from ratchet.agentkit import Change
    from ratchet.agents.actions import Moved
    from ratchet.agents.servers import Called

_LONGEST_CALL = 3600
_SHORT = 12

AgentName = Annotated[
    str, Param("The name of an agent.", metavar="AGENT", longest=200, outside="The name of an agent.")
]
_REFERENCE = "A commit, a number such as 0.1.0, a tag such as v0.1.0, `current` or `latest`."
VersionName = Annotated[str, Param(_REFERENCE, metavar="VERSION", longest=200)]
ChosenVersion = Annotated[str, line_of(_REFERENCE, "VERSION", argument=True)]
VersionFilter = Annotated[
    str | None,
    Param("Of this version; of the current one if not given.", metavar="VERSION", longest=200),
]
Server = Annotated[Role, Param("Which of the two servers.")]
Engine = Annotated[
    str | None,
    line_of("Who writes it, see `ratchet engine list`; engines.default if not given.", "ENGINE", engine=True),
]
Model = Annotated[
    str | None, line_of("The model that the engine uses; its own choice if not given.", "MODEL", engine=True)
]
Simulated = Annotated[
    bool, Param("Allow recorded sessions; what they make is marked as a simulation.", flag="--simulated")
]


@dataclass(frozen=True, slots=True)
class RunningVersion:
    """A version whose servers this process has started, or tries to."""

    commit: str
    state: str
    calls: int = field(metadata=described("calls in flight"))
    sessions: int = field(metadata=described("sessions that clients have open"))
    servers: dict[str, Any] = field(metadata=described("each with its state, port, restarts and crashes"))


@dataclass(frozen=True, slots=True)
class ServedAgent(WholeAgent):
    serving: list[RunningVersion] | None = field(
        metadata=described("what this process runs of it; null where another process serves agents")
    )


@dataclass(frozen=True, slots=True)
class MovedAgent(WholeAgent):
    """An agent whose address was moved."""

    before: str | None = field(metadata=described("the commit that the address led to before"))
    state: str | None = field(default=None, metadata=described("what became of the state, if it moved"))

    @property
    def named(self) -> str:
        """Its version, for a person."""
        return f"{self.version} ({(self.commit or '')[:_SHORT]})"

    @property
    def moved_to(self) -> str:
        """The same, and what became of the state."""
        return self.named if self.state is None else f"{self.named}: {self.state}"


@dataclass(frozen=True, slots=True)
class DeletedAgent:
    agent: str
    deleted: bool
    directory: str | None = field(metadata=described("where its files lie"))


@dataclass(frozen=True, slots=True)
class AgentReply:
    """What a tool answered: `content` as MCP has it, `text` what of it a person can read."""

    agent: str
    tool: str
    failed: bool
    text: str
    content: list[Any]
    structured: Any

    @classmethod
    def of(cls, agent: str, tool: str, called: Called) -> AgentReply:
        return filled(cls, called, agent=agent, tool=tool, content=list(called.content))


@dataclass(frozen=True, slots=True)
class AgentLogLines:
    agent: str
    commit: str
    server: Role
    printed: bool
    lines: list[str]
    is_cut: bool = field(metadata=described("whether there is more before these lines"))

    @classmethod
    def of(cls, log: log_files.AgentLog, end: log_files.LogEnd) -> AgentLogLines:
        return filled(cls, log, server=log.role, lines=list(end.lines), is_cut=end.is_cut)


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of the state. `recovered` says that it was not reported when it happened."""

    number: int
    at: int
    by: str | None
    restored: int | None = field(metadata=described("the change whose state came back"))
    recovered: bool

    @classmethod
    def of(cls, change: Change) -> StateChange:
        return filled(cls, change, at=int(change.at.timestamp() * 1000))


def _by(call: Call) -> dict[str, Any]:
    return {"actor": call.actor, "request_id": call.request_id}


def _whole(call: Call, name: str) -> WholeAgent:
    with call.read() as tx:
        return views.one_agent(tx, call.home, call.settings.agents, name)


def _moved(call: Call, moved: Moved) -> MovedAgent:
    state = None if moved.resumed is None else moved.resumed.sentence
    return filled(MovedAgent, _whole(call, moved.agent.name), before=moved.before, state=state)


def _started(call: Call, run_id: int) -> AgentRunAnswer:
    with call.read() as tx:
        return AgentRunAnswer.of(get_run(tx, run_id))


@operation(
    "agent list",
    "GET /agents",
    tool=McpTool("list_agents", "List agents"),
    examples=["ratchet agent list", "ratchet agent list --json | jq -r '.[].name'"],
    columns={
        "agent": "name",
        "status": "status",
        "version": "version",
        "commit": lambda agent: agent.commit and agent.commit[:_SHORT],
        "pinned": lambda agent: agent.pinned or None,
        "simulated": lambda agent: agent.simulated or None,
        "changed": "updated_at",
        "description": lambda agent: agent.reason or agent.description,
    },
    empty='No agents yet. `ratchet agent create NAME "WHAT IT SHOULD DO"` makes one.',
    limit=100,
)
def list_(call: Call, window: NameWindow) -> Listing[AgentAnswer]:
    """List agents by name.

    The version is the one that an agent's address leads to now.
    """
    with call.read() as tx:
        return window.cut(views.agents(tx, after=window.after, limit=window.one_more))


@operation(
    "agent create",
    "POST /agents",
    tool=McpTool("create_agent", "Create an agent", outside=True, queues=True),
    done="Run {it.run} makes the agent",
    status=202,
    location="/runs/{it.run}",
)
def create(
    call: Call,
    name: Annotated[
        str,
        line_of(
            "What to call it.",
            "NAME",
            argument=True,
            outside="lower-case letters, digits, '.', '_' and '-', such as greeter",
        ),
    ],
    description: Annotated[
        str, Param("What it should do, in words.", metavar="WHAT", shortest=1, argument=True)
    ],
    engine: Engine = None,
    model: Model = None,
    simulated: Simulated = False,
) -> AgentRunAnswer:
    """Make an agent, a pair of MCP servers, from a description of what it should do.

    A coding engine writes it in a run, which takes minutes. 409 when there is one of that name, 424 when the engine
    that writes it cannot work now.
    """
    from ratchet.agents.architect import AgentRequest, check_creation, create_agent
    from ratchet.engines.preflight import check_for_worker

    wanted = AgentRequest(name=name, description=description, engine=engine, model=model, simulated=simulated)
    check_for_worker(call.runtime, functools.partial(check_creation, call.runtime, wanted))
    return _started(call, create_agent(call.runtime, wanted, **_by(call)))


@operation(
    "agent show",
    "GET /agents/{name}",
    tool=McpTool("get_agent", "Show an agent"),
    examples=["ratchet agent show greeter", "ratchet agent show greeter --json | jq -r .address.runner"],
    see=["agent versions", "agent tools"],
)
async def show(call: Call, name: AgentName) -> ServedAgent:
    """Show one agent: its version, its address, its last runs.

    The address stays the same whatever the version. Whether a host answers there now is said, too: `ratchet serve`
    would.
    """
    import asyncio

    found = await asyncio.to_thread(_whole, call, name)
    serving = call.serving(name)
    running = serving and [RunningVersion(**{key: each[key] for key in _RUNNING}) for each in serving]
    return filled(ServedAgent, found, serving=running)


_RUNNING = tuple(RunningVersion.__dataclass_fields__)


@operation(
    "agent delete",
    "DELETE /agents/{name}",
    tool=McpTool("delete_agent", "Delete an agent", destructive=True, without=frozenset({"purge"})),
    examples=["ratchet agent delete greeter", "ratchet agent delete greeter --yes --purge"],
    see=["agent list"],
    done=lambda it: f"{it.agent} is deleted" + (f"; its files lie in {it.directory}" if it.directory else ""),
    asks=lambda it: (
        f"Delete {it['name']}" + (" with all its versions and states, for good?" if it["purge"] else "?")
    ),
    status=204,
)
def delete(
    call: Call,
    name: AgentName,
    purge: Annotated[bool, Param("Remove its directory with all versions and states for good.")] = False,
) -> DeletedAgent:
    """Delete an agent; its name is free again.

    Its servers are stopped and its address answers no more. Its directory is put away, not removed, unless --purge says
    so. What happened stays in the ledger.
    """
    from ratchet.agents import actions

    kept = actions.delete(call, name, purge=purge, **_by(call))
    return DeletedAgent(name, deleted=True, directory=None if kept is None else str(kept))


@operation(
    "agent versions",
    "GET /agents/{name}/versions",
    tool=McpTool("list_agent_versions", "List the versions of an agent"),
    examples=[
        "ratchet agent versions greeter",
        "ratchet agent versions greeter --json | jq -r '.[] | [.version, .commit] | @tsv'",
    ],
    see=["agent diff", "agent promote"],
)
def versions(call: Call, window: Window, name: AgentName) -> Listing[ListedVersion]:
    """List the versions of an agent, newest first.

    @ is the current version, o any other, and a line leads down to the version that one was made from; what is in a
    column of its own is a variant. Versions are commits: `git log` works in the agent's repo.git.
    """
    with call.read() as tx:
        return window.cut(views.versions(tx, name, before=window.before, limit=window.one_more))


@operation(
    "agent version",
    "GET /agents/{name}/versions/{version}",
    tool=McpTool("get_agent_version", "Show a version of an agent"),
)
def version(call: Call, name: AgentName, version: VersionName) -> WholeVersion:
    """One version of an agent with the tools that it offers and their arguments. `latest` is the newest."""
    with call.read() as tx:
        return views.one_version(tx, call.home, name, version)


@operation(
    "agent diff",
    "GET /agents/{name}/diff",
    tool=McpTool("compare_agent_versions", "Compare two versions of an agent"),
    examples=[
        "ratchet agent diff greeter",
        "ratchet agent diff greeter 0.0.0",
        "ratchet agent diff greeter 0.0.0 0.1.0 --json",
    ],
    see=["agent versions"],
)
def diff(
    call: Call,
    name: AgentName,
    old: Annotated[
        str | None,
        Param(
            "A version; the one NEW was made from if not given.", metavar="OLD", longest=200, argument=True
        ),
    ] = None,
    new: Annotated[
        str | None,
        Param("A version; the current one if not given.", metavar="NEW", longest=200, argument=True),
    ] = None,
) -> VersionComparison:
    """Show what differs between two versions of an agent.

    Without OLD it is the version that NEW was made from, and without NEW the current one. The patch goes to stdout, as
    `git diff` writes it, and what became of the tools to stderr.
    """
    with call.read() as tx:
        compared = views.find_compared(tx, name, old, new)
    return views.comparison(call.home, compared)


@operation(
    "agent runs",
    "GET /agents/{name}/runs",
    tool=McpTool("list_agent_runs", "List what was asked of an agent"),
)
def runs(call: Call, window: Window, name: AgentName) -> Listing[AgentRunAnswer]:
    """Creation and feedback of an agent, newest first, with what was decided."""
    with call.read() as tx:
        get_agent(tx, name)
        found = views.agent_runs(tx, name, before=window.before, limit=window.one_more)
    return window.cut(found, number="run")


@operation(
    "agent feedback",
    "POST /agents/{name}/feedback",
    tool=McpTool("send_feedback", "Give an agent feedback", outside=True, queues=True),
    done="Run {it.run} works on it",
    status=202,
    location="/runs/{it.run}",
)
def feedback(
    call: Call,
    name: AgentName,
    message: Annotated[
        str,
        Param(
            "What was wrong, in words.",
            metavar="TEXT",
            shortest=1,
            argument=True,
            outside="what was wrong, or what is wanted",
        ),
    ],
    severity: Annotated[Severity, Param("How bad it was.")] = Severity.NORMAL,
    version: Annotated[
        str | None,
        line_of(
            "The version that it is about, the current one if not given; another one branches.", "VERSION"
        ),
    ] = None,
    about: Annotated[
        list[str],
        Param(
            "A tool that may answer recorded calls otherwise from now on; may be given several times.",
            metavar="TOOL",
            shortest=1,
            longest=128,
            outside="the tools that may answer recorded calls otherwise from now on",
        ),
    ] = [],  # noqa: B006  never changed
    engine: Engine = None,
    model: Model = None,
    simulated: Simulated = False,
) -> AgentRunAnswer:
    """Tell an agent what was wrong with it, or what is wanted.

    A run decides: nothing, a change of the state, or a change of the code, which is tested before it is used. Feedback
    on one agent is taken one after the other. A change by which a tool that it is not `about` answers a recorded call
    otherwise waits for an approval; only the operator and a key with the scope `admin` say what it is about. 409 for a
    key of the agent while a change that callers asked for is under way, or when their budget of the day is used up. 422
    when it is longer than `agents.feedback_bytes`, 424 when the engine cannot work now.
    """
    from ratchet.agents.architect import check_feedback, send_feedback
    from ratchet.agents.learning import send_as_caller
    from ratchet.engines.preflight import check_for_worker

    who = {"engine": engine, "model": model}
    check_for_worker(call.runtime, functools.partial(check_feedback, call.runtime, name, message, **who))
    if call.is_budgeted and about:
        raise Misuse(
            "what feedback is about is said by the operator, or with a key that has the scope admin",
            hint="leave out `about`",
        )
    send = send_as_caller if call.is_budgeted else send_feedback
    run_id = send(
        call.runtime,
        name,
        message,
        severity=severity,
        version=version,
        about=about,
        engine=engine,
        model=model,
        simulated=simulated,
        **_by(call),
    )
    return _started(call, run_id)


@operation(
    "agent rollback",
    "POST /agents/{name}/rollback",
    tool=McpTool("rollback_agent", "Roll an agent back"),
    examples=["ratchet agent rollback greeter", "ratchet agent rollback greeter 0.1.0 --carry-state"],
    see=["agent versions", "agent promote", "agent pin"],
    done="{it.name} is back at {it.moved_to}",
)
def rollback(
    call: Call,
    name: AgentName,
    version: Annotated[
        str | None,
        line_of(
            "A commit, a number such as 0.1.0 or a tag; the one that was current before if not given.",
            "VERSION",
            argument=True,
        ),
    ] = None,
    carry_state: Annotated[
        bool, Param("Give one with another form of the state the present one, if that fits its schema.")
    ] = False,
    leave_changes: Annotated[
        bool, Param("Also where changes of the state stay with the version that is current now.")
    ] = False,
) -> MovedAgent:
    """Take an agent back to an earlier version.

    Without VERSION to the one that was current before. It works on the state that there is; one that has it in another
    form resumes its own, as it was left. Where changes would stay behind, 409 says which, and nothing is done without
    --leave-changes or --carry-state. Nothing is deleted: `ratchet agent promote` goes forward again.
    """
    from ratchet.agents import actions

    moved = actions.rollback(
        call, name, version, carry_state=carry_state, leave_changes=leave_changes, **_by(call)
    )
    return _moved(call, moved)


@operation(
    "agent promote",
    "POST /agents/{name}/promote",
    tool=McpTool("promote_agent", "Promote a version of an agent", repeatable=True),
    examples=["ratchet agent promote greeter 0.2.0", "ratchet agent promote greeter 9f1c2ab --force"],
    see=["agent versions", "agent rollback"],
    done=lambda it: (
        f"{it.name} is {it.named} already" if it.before == it.commit else f"{it.name} is now {it.moved_to}"
    ),
)
def promote(
    call: Call,
    name: AgentName,
    version: ChosenVersion,
    force: Annotated[bool, Param("Also a quarantined version; that takes it out of quarantine.")] = False,
) -> MovedAgent:
    """Let an agent's address lead to this version.

    For a variant that turned out better, or to go forward again after a rollback. VERSION is a commit or its
    beginning, a number such as 0.1.0, or a tag such as v0.1.0.
    """
    from ratchet.agents import actions

    return _moved(call, actions.promote(call, name, version, force=force, **_by(call)))


@operation(
    "agent pin",
    "POST /agents/{name}/pin",
    tool=McpTool("pin_agent", "Pin an agent", repeatable=True),
    examples=[
        "ratchet agent pin greeter 0.1.0",
        "ratchet agent pin greeter current",
        "ratchet agent pin greeter latest",
    ],
    see=["agent promote"],
    done=lambda it: (
        f"{it.name} is pinned at {it.named}; `ratchet agent pin {it.name} latest` unpins it"
        if it.pinned
        else f"{it.name} follows new versions again"
    ),
)
def pin(call: Call, name: AgentName, version: ChosenVersion) -> MovedAgent:
    """Hold an agent's address at a version, or let it move again.

    While it is pinned, feedback still makes new versions, but the address does not follow them. `latest` takes the pin
    away; the address stays where it is until there is a new version. To pin a single caller, have it use the address
    /agents/NAME@VERSION/runner/mcp instead.
    """
    from ratchet.agents import actions

    return _moved(call, actions.pin(call, name, version, **_by(call)))


@operation(
    "agent unpin",
    "POST /agents/{name}/unpin",
    tool=McpTool("unpin_agent", "Unpin an agent", repeatable=True),
    done="{it.name} follows new versions again",
)
def unpin(call: Call, name: AgentName) -> MovedAgent:
    """Let new versions move the address of an agent again."""
    return pin(call, name, "latest")


# Both wait for an agent and not for the database, so they hold no thread meanwhile.
@operation("agent tools", "GET /agents/{name}/tools", enveloped=False)
async def tools(
    call: Call, name: AgentName, version: VersionFilter = None, server: Server = Role.RUNNER
) -> Listing[ToolShape]:
    """The tools that a server of the agent lists; it is started if it does not run."""
    from ratchet.agents.client import Callee, tools_of

    return Listing(await tools_of(call.runtime, call.loaded, Callee(name, server, version)))


@operation(
    "agent call",
    "POST /agents/{name}/call",
    tool=McpTool("call_agent", "Call an agent", destructive=True, outside=True),
)
async def call_(
    call: Call,
    name: AgentName,
    tool: Annotated[str, line_of("A tool that `ratchet agent tools` lists.", "TOOL", argument=True)],
    arguments: Annotated[
        dict[str, Any] | None, Param("All arguments as one JSON object.", flag="--arguments")
    ] = None,
    version: Annotated[
        str | None, line_of("Of this version; of the current one if not given.", "VERSION")
    ] = None,
    server: Server = Role.RUNNER,
    timeout: Annotated[  # noqa: ASYNC109  it is for the agent
        float, Param("Wait for an answer no longer, in seconds.", above=0, most=_LONGEST_CALL)
    ] = CALL_SECONDS,
) -> AgentReply:
    """Call a tool of an agent and get its answer; its version lists its tools.

    422 for a tool or an argument that there is not, 502 when the agent does not answer. That the tool itself failed is
    reported by `failed` in an answer with 200.
    """
    from ratchet.agents.client import check_arguments

    given = functools.partial(check_arguments, arguments=arguments or {})
    return await called(call, name, tool, given, version=version, server=server, seconds=timeout)


async def called(
    call: Call, name: str, tool: str, arguments: Any, *, version: str | None, server: Role, seconds: float
) -> AgentReply:
    """What a tool answers to the arguments that are made for it, once it is known."""
    from ratchet.agents.client import Callee
    from ratchet.agents.client import call as call_agent

    callee = Callee(name, server, version)
    return AgentReply.of(
        name, tool, await call_agent(call.runtime, call.loaded, callee, tool, arguments, seconds=seconds)
    )


@operation(
    "agent logs",
    "GET /agents/{name}/logs",
    tool=McpTool("read_agent_log", "Read the log of an agent"),
)
def logs(
    call: Call,
    name: AgentName,
    version: VersionFilter = None,
    server: Server = Role.RUNNER,
    printed: Annotated[bool, Param("What it printed, instead of what it logged.")] = False,
    lines: Annotated[int, Param("At most so many, the last ones.", least=0, most=log_files.MOST_LINES)] = 200,
) -> AgentLogLines:
    """The last lines that a server of an agent logged; of the current version, if none is named."""
    with call.read() as tx:
        log = log_files.find_log(tx, call.home, name, server, version, printed=printed)
    return AgentLogLines.of(log, log_files.tail(log, lines))


@operation(
    "agent state",
    "GET /agents/{name}/state",
    tool=McpTool("get_agent_state", "Show the state of an agent"),
)
def state(
    call: Call,
    name: AgentName,
    version: VersionFilter = None,
    at: Annotated[int | None, number_of("Show the state as it was after change N.", "N")] = None,
) -> dict[str, Any]:
    """What an agent has learned: its state as it is, or as it was after the change numbered `at`."""
    from ratchet.agents import actions

    if at is None:
        return actions.read_state(call, name, version)
    return actions.state_at(call, name, at, version)


@operation(
    "agent history",
    "GET /agents/{name}/state/history",
    tool=McpTool("list_agent_state_changes", "List the changes of an agent's state"),
    columns={
        "change": "number",
        "made": "at",
        "by": "by",
        "restored": "restored",
        "recovered": lambda change: change.recovered or None,
    },
    empty="The state has not changed yet.",
)
def history(
    call: Call, window: Window, name: AgentName, version: VersionFilter = None
) -> Listing[StateChange]:
    """The changes of an agent's state, newest first. `before` takes a change's number."""
    from ratchet.agents import actions

    found = actions.state_history(call, name, version, limit=window.one_more, before=window.before)
    return window.cut(list(map(StateChange.of, found)), number="number")


@operation(
    "agent restore",
    "POST /agents/{name}/state/restore",
    tool=McpTool("restore_agent_state", "Restore the state of an agent", repeatable=True),
    done="The state is restored, as change {it.number}",
)
def restore(
    call: Call,
    name: AgentName,
    number: Annotated[
        int, number_of("Bring the state after change N back, as a new change.", "N", "--restore")
    ],
    version: Annotated[
        str | None, line_of("Of this version; of the current one if not given.", "VERSION")
    ] = None,
) -> StateChange:
    """Bring the state back that an agent had after the change `number`, as a new change.

    The newest change is returned. Doing it again changes nothing.
    """
    from ratchet.agents import actions

    return StateChange.of(actions.restore_state(call, name, number, version, **_by(call)))


OPERATIONS = (
    list_, create, show, delete, versions, version, diff, runs, feedback, rollback, promote, pin, unpin, tools, call_,
    logs, state, history, restore,
)  # fmt: skip
