"""The operations on what production shows of an agent, and on what follows from it."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from ratchet.agents import views
from ratchet.agents.judge_operations import Arguments, Expected
from ratchet.agents.operations import AgentName, Engine, Model
from ratchet.agents.views import AgentRunAnswer
from ratchet.kernel import Misuse, NotFound
from ratchet.ledger import Transaction
from ratchet.ledger import production as rows
from ratchet.ledger.agents import get_agent, set_learning
from ratchet.ledger.production import CallTotals, Incident, IncidentStatus
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
from ratchet.runtime.schedules import get_schedule, remove_schedule


@dataclass(frozen=True, slots=True)
class VersionCalls:
    """The calls of one version. Times are bounds: so many milliseconds at most; null is above the largest."""

    version: str
    commit: str
    is_current: bool
    calls: int
    failed: int = field(metadata=described("the tool refused or failed"))
    errors: int = field(metadata=described("no answer came: its server ended, or the caller gave up"))
    mean_ms: float
    p50_ms: int | None
    p95_ms: int | None
    tools: dict[str, int] = field(metadata=described("calls by tool"))


@dataclass(frozen=True, slots=True)
class SplitAnswer:
    """A share of the new sessions that goes to another version, and the calls since then."""

    candidate: str
    against: str
    percent: int
    wanted_calls: int = field(metadata=described("calls of both versions that the last look waits for"))
    status: str
    reason: str | None
    current: dict[str, int]
    other: dict[str, int]
    created_at: int


@dataclass(frozen=True, slots=True)
class ProductionAnswer:
    """What production shows of an agent now."""

    agent: str
    versions: list[VersionCalls]
    incidents: int = field(metadata=described("open ones"))
    remarks: int = field(metadata=described("remarks of callers that wait to be worked on"))
    learning: str = field(metadata=described("ask or auto"))
    today: dict[str, float] = field(metadata=described("what changes that no person asked for used today"))
    used_up: str | None = field(metadata=described("which budget of the day is used up"))
    split: SplitAnswer | None
    watch: str | None = field(metadata=described("when its evals are run"))


def _versions(found: list[CallTotals], current: str | None) -> list[VersionCalls]:
    by_commit: dict[str, CallTotals] = {}
    tools: dict[str, dict[str, int]] = {}
    for each in found:
        known = by_commit.get(each.commit)
        by_commit[each.commit] = each if known is None else known + each
        name = each.tool if each.server == "runner" else f"{each.server} {each.tool}"
        tools.setdefault(each.commit, {})[name] = each.calls
    return [
        VersionCalls(
            each.version,
            commit,
            commit == current,
            each.calls,
            each.failed,
            each.errors,
            round(each.milliseconds / max(1, each.calls), 1),
            each.within_ms(0.5),
            each.within_ms(0.95),
            tools[commit],
        )
        for commit, each in by_commit.items()
    ]


def _bound(value: int | None) -> str:
    return f"> {rows.CALL_BUCKETS_MS[-1]}" if value is None else f"≤ {value}"


def _rates(it: ProductionAnswer) -> str:
    return "\n".join(
        f"{each.version} ({each.commit[:12]}){' current' if each.is_current else ''}: {each.calls} calls,"
        f" {each.failed} failed, {each.errors} without an answer, half {_bound(each.p50_ms)} ms,"
        f" 95 % {_bound(each.p95_ms)} ms"
        for each in it.versions
    )


def _split_words(split: SplitAnswer | None) -> str | None:
    if split is None:
        return None
    return (
        f"{split.percent} % of new sessions to {split.candidate[:12]}: {split.status}"
        + (f" ({split.reason})" if split.reason else "")
        + f"; since then {split.other['wrong']} of {split.other['calls']} calls went wrong,"
        f" {split.current['wrong']} of {split.current['calls']} of the current version"
    )


@operation(
    "agent production",
    "GET /agents/{name}/production",
    tool=McpTool("get_agent_production", "Show what production shows of an agent"),
    examples=["ratchet agent production greeter"],
    see=["agent incidents", "agent calls", "agent traffic"],
    columns={
        "agent": "agent",
        "calls": lambda it: _rates(it) or "none yet",
        "incidents": lambda it: f"{it.incidents} open",
        "remarks": lambda it: f"{it.remarks} wait",
        "incidents start changes": lambda it: (
            "by themselves" if it.learning == "auto" else "when a person asks"
        ),
        "today": lambda it: (
            f"{it.today['runs']:g} changes by themselves, ${it.today['usd']:.4f}, {it.today['tokens']:g} tokens"
        ),
        "used up": "used_up",
        "traffic": lambda it: _split_words(it.split),
        "evals run": "watch",
    },
)
def production(call: Call, name: AgentName) -> ProductionAnswer:
    """Show calls, times and failures of each version of an agent, and what follows from them.

    Calls are counted while `ratchet serve` runs; `/metrics` has the same numbers.
    """
    from ratchet.agents import learning

    settings = call.settings.agents
    with call.read() as tx:
        agent = get_agent(tx, name)
        incidents = rows.list_incidents(tx, agent.id, limit=_MOST)
        runs, used = learning.spent_today(tx, agent)
        return ProductionAnswer(
            agent=name,
            versions=_versions(rows.call_totals(tx, agent.id), agent.current),
            incidents=sum(learning.standing(tx, each) is IncidentStatus.OPEN for each in incidents),
            remarks=len(rows.waiting_remarks(tx, agent.id)),
            learning=agent.learning or settings.learn,
            today={"runs": runs, "usd": used.cost_usd, "tokens": used.tokens},
            used_up=learning.used_up(tx, agent, settings),
            split=_split(tx, agent.id),
            watch=_watch(tx, f"agent-{agent.id}-evals"),
        )


_MOST = 200


def _split(tx: Transaction, agent_id: int) -> SplitAnswer | None:
    from ratchet.agents.traffic import counts_of

    found = rows.open_split(tx, agent_id)
    if found is None:
        return None
    current, other = counts_of(tx, found)
    counts = {"current": current._asdict(), "other": other._asdict()}
    return filled(SplitAnswer, found, **counts, status=str(found.status))


def _watch(tx: Transaction, schedule: str) -> str | None:
    try:
        found = get_schedule(tx, schedule)
    except NotFound:
        return None
    then = "rolls back" if found.payload.get("rollback") else "calls a person"
    return f"{found.words or found.meaning} ({found.timezone}), and {then}"


@dataclass(frozen=True, slots=True)
class IncidentAnswer:
    """Calls that went wrong in the same way, with the input of one. `versions` are commits, the newest last."""

    id: int
    kind: str = field(metadata=described("failed, error (no answer came) or drift (an eval is not answered)"))
    server: str
    tool: str
    message: str
    arguments: Any
    is_whole: bool = field(
        metadata=described("false where something of the input was hidden, cut or not kept")
    )
    count: int
    versions: list[str]
    first_at: int
    last_at: int
    status: str
    run_id: int | None = field(metadata=described("the run that was started for it last"))


def _answer(tx: Transaction, found: Incident) -> IncidentAnswer:
    from ratchet.agents.learning import standing

    return filled(IncidentAnswer, found, status=str(standing(tx, found)))


@operation(
    "agent incidents",
    "GET /agents/{name}/incidents",
    tool=McpTool("list_agent_incidents", "List the incidents of an agent"),
    examples=["ratchet agent incidents greeter", "ratchet agent incidents greeter --json"],
    see=["agent propose", "agent dismiss", "agent calls"],
    columns={
        "incident": "id",
        "status": "status",
        "kind": "kind",
        "tool": "tool",
        "times": "count",
        "first": "first_at",
        "last": "last_at",
        "versions": lambda it: ", ".join(each[:12] for each in it.versions),
        "input": lambda it: json.dumps(it.arguments) if it.is_whole else "not whole",
        "what came of it": "message",
        "run": "run_id",
    },
    empty="Nothing went wrong in the calls that were recorded.",
)
def incidents(call: Call, window: Window, name: AgentName) -> Listing[IncidentAnswer]:
    """List failures and crashes in calls of an agent, in groups, with the input that caused them.

    Calls of the same tool with the same error are one incident, whatever names and numbers are in it. What does not fit
    a tool's schema is the mistake of its caller, and none.
    """
    with call.read() as tx:
        agent = get_agent(tx, name)
        found = rows.list_incidents(tx, agent.id, before=window.before, limit=window.one_more)
        return window.cut([_answer(tx, each) for each in found])


IncidentNumber = Annotated[int, number_of("The number of an incident.", "INCIDENT")]


@operation(
    "agent propose",
    "POST /agents/{name}/incidents/{incident_id}/propose",
    tool=McpTool("propose_agent_change", "Have an incident of an agent fixed", outside=True, queues=True),
    examples=["ratchet agent propose greeter 3"],
    see=["agent incidents", "agent certificate"],
    done="Run {it.run} works on it",
    status=202,
    location="/runs/{it.run}",
)
def propose(
    call: Call,
    name: AgentName,
    incident_id: IncidentNumber,
    expect: Expected = None,
    arguments: Arguments = None,
    engine: Engine = None,
    model: Model = None,
) -> AgentRunAnswer:
    """Have an incident fixed: a change that must answer its call, which becomes an eval.

    The call must not fail any more, or be answered as `expect` says. 422 for an incident whose input is not whole,
    unless `arguments` are given; 409 while a run works on it, or if it is fixed.
    """
    from ratchet.agents import learning
    from ratchet.agents.architect import check_feedback
    from ratchet.engines.preflight import check_for_worker

    check = functools.partial(check_feedback, call.runtime, name, "fix it", engine=engine, model=model)
    check_for_worker(call.runtime, check)
    with call.write() as tx:
        run_id = learning.begin_proposal(
            tx,
            call.runtime,
            name,
            incident_id,
            arguments=arguments,
            expect=expect,
            engine=engine,
            model=model,
        )
    with call.read() as tx:
        return views.agent_runs(tx, name, before=run_id + 1, limit=1)[0]


@operation(
    "agent dismiss",
    "POST /agents/{name}/incidents/{incident_id}/dismiss",
    tool=McpTool("dismiss_agent_incident", "Dismiss an incident of an agent", repeatable=True),
    examples=["ratchet agent dismiss greeter 3"],
    see=["agent incidents"],
    done="Incident {it.id} is {it.status}",
)
def dismiss(call: Call, name: AgentName, incident_id: IncidentNumber) -> IncidentAnswer:
    """Dismiss an incident: it is counted on, and starts no change by itself."""
    with call.write() as tx:
        found = rows.set_incident(tx, get_agent(tx, name), incident_id, IncidentStatus.DISMISSED)
        return _answer(tx, found)


class LearnMode(StrEnum):
    """Whether incidents start changes; `settings` leaves it to `agents.learn`."""

    ASK = "ask"
    AUTO = "auto"
    SETTINGS = "settings"


@operation(
    "agent learn",
    "POST /agents/{name}/learn",
    tool=McpTool("set_agent_learning", "Set whether incidents of an agent start changes", repeatable=True),
    examples=["ratchet agent learn greeter auto", "ratchet agent learn greeter settings"],
    see=["agent incidents", "agent production"],
    done=lambda it: (
        f"incidents of {it.agent} start changes {'by themselves' if it.learning == 'auto' else 'on demand'}"
    ),
)
def learn(
    call: Call,
    name: AgentName,
    mode: Annotated[
        LearnMode,
        Param(
            "ask: a person starts the change that an incident calls for; auto: it starts by itself, within the budget"
            " of the day; settings: as agents.learn says.",
            argument=True,
        ),
    ],
) -> ProductionAnswer:
    """Say whether incidents of an agent start changes by themselves, or when a person asks."""
    from ratchet.agents.learning import is_automatic, want_to_learn

    settings = call.settings.agents
    with call.write() as tx:
        set_learning(tx, get_agent(tx, name), None if mode is LearnMode.SETTINGS else str(mode))
        if is_automatic(agent := get_agent(tx, name), settings):
            want_to_learn(tx, call.runtime.jobs, agent, settings)
    return production(call, name)


@dataclass(frozen=True, slots=True)
class RemarkAnswer:
    """What callers said of a version at its Tuner; `count` is how often. It waits while it has no run."""

    id: int
    commit: str
    message: str
    severity: str
    count: int
    created_at: int
    last_at: int
    run_id: int | None


@operation(
    "agent remarks",
    "GET /agents/{name}/remarks",
    tool=McpTool("list_agent_remarks", "List what callers remarked on an agent"),
    examples=["ratchet agent remarks greeter"],
    see=["agent production", "agent feedback"],
    columns={
        "remark": "id",
        "times": "count",
        "severity": "severity",
        "version": lambda it: it.commit[:12],
        "last": "last_at",
        "run": lambda it: it.run_id or "waits",
        "said": "message",
    },
    empty="No caller remarked anything by its Tuner.",
)
def remarks(call: Call, window: Window, name: AgentName) -> Listing[RemarkAnswer]:
    """List what callers remarked on an agent by its Tuner, newest first.

    The same words are one remark. What waits is worked on together, within the budget of the day (`agents.learn_…`).
    """
    with call.read() as tx:
        agent = get_agent(tx, name)
        found = rows.list_remarks(tx, agent.id, before=window.before, limit=window.one_more)
    return window.cut([filled(RemarkAnswer, each) for each in found])


def _percent(text: str) -> int:
    digits = text.strip().removesuffix("%").strip()
    if not digits.isascii() or not digits.isdigit() or not 1 <= int(digits[:4]) <= 99:
        raise Misuse(f"{text!r} is no share of the traffic", hint="a whole number from 1 to 99, such as 10%")
    return int(digits)


@operation(
    "agent traffic",
    "POST /agents/{name}/traffic",
    tool=McpTool("split_agent_traffic", "Split the traffic of an agent between two versions"),
    examples=["ratchet agent traffic greeter --to 0.1.0 10%", "ratchet agent traffic greeter --stop"],
    see=["agent production", "agent pin", "agent promote"],
    done=lambda it: _split_words(it.split) or f"all calls of {it.agent} go to its current version",
)
def traffic(
    call: Call,
    name: AgentName,
    share: Annotated[
        str | None, line_of("The share of new sessions, such as 10%.", "SHARE", argument=True)
    ] = None,
    to: Annotated[
        str | None, line_of("The version that gets it: a commit, a number or a tag.", "VERSION")
    ] = None,
    stop: Annotated[bool, Param("End the split: all new sessions go to the current version.")] = False,
) -> ProductionAnswer:
    """Send a share of the new sessions of an agent to another version, until it is clear which is better.

    A session stays with the version that it began with. After `agents.traffic_calls` calls of both versions, and four
    times on the way, the shares of calls that went wrong are compared: the version is stopped if it fails more often
    beyond doubt, promoted if it does not by more than `agents.traffic_margin`, and else a person is asked.
    """
    from ratchet.agents import traffic as splits

    if stop == (share is not None or to is not None) or (share is None) != (to is None):
        raise Misuse(
            "give a share and --to, or --stop", hint=f"`ratchet agent traffic {name} --to VERSION 10%`"
        )
    with call.write() as tx:
        agent = get_agent(tx, name)
        if share is None or to is None:
            splits.stop(tx, agent, call.person)
        else:
            begun = splits.begin(tx, agent, to, _percent(share), call.settings.agents)
            splits.check_state(call.home, agent, begun.candidate)
    return production(call, name)


@operation(
    "agent watch",
    "POST /agents/{name}/watch",
    tool=McpTool("watch_agent", "Run the evals of an agent by a schedule", repeatable=True),
    examples=[
        'ratchet agent watch greeter "every night at 2" --rollback',
        "ratchet agent watch greeter --off",
    ],
    see=["agent eval list", "schedule list", "agent incidents"],
    done=lambda it: (
        f"the evals of {it.agent} are run {it.watch}" if it.watch else f"{it.agent} is not watched"
    ),
)
def watch(
    call: Call,
    name: AgentName,
    when: Annotated[
        str | None, line_of('Plain English, such as "every night at 2", or cron.', "WHEN", argument=True)
    ] = None,
    timezone: Annotated[str, line_of("Such as Europe/Berlin.", "ZONE")] = "UTC",
    rollback: Annotated[
        bool, Param("Go back to the version before if that one answers all of them; else a person is called.")
    ] = False,
    off: Annotated[bool, Param("Watch it no more.")] = False,
) -> ProductionAnswer:
    """Run the evals of an agent by a schedule, against the version in use.

    An eval that fails twice in a row is an incident, which calls a person; with --rollback the address goes back to
    the version before, if that one answers all of them.
    """
    from ratchet.agents import traffic as splits

    if off == (when is not None):
        raise Misuse("say when, or --off", hint=f'`ratchet agent watch {name} "every night at 2"`')
    with call.write() as tx:
        agent = get_agent(tx, name)
        if when is None:
            remove_schedule(tx, splits.schedule_name(agent))
        else:
            splits.begin_watch(tx, call.runtime, agent, when, timezone=timezone, rollback=rollback)
    return production(call, name)


OPERATIONS = (production, incidents, propose, dismiss, learn, remarks, traffic, watch)
