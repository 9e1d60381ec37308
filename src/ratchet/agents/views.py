"""Agents as they are shown: what each is for, where its address leads, and what happened to it last."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ratchet.agents.addresses import AgentAddress, addresses
from ratchet.agents.contract import ToolShape, place_of
from ratchet.agents.jobs import RUN_KIND
from ratchet.agents.versions import changes_since, find_version, shapes_of, tag_for, tags_of
from ratchet.kernel import Conflict, NotFound, Outcome, RatchetError, RunStatus, decoded, exact_bytes
from ratchet.ledger.agents import (
    AgentRow,
    AgentStatus,
    AgentVersion,
    VersionStatus,
    current_versions,
    get_agent,
    get_version,
    line_of,
    list_agents,
    list_versions,
    with_blocked,
)
from ratchet.ledger.agents import find_version as version_at
from ratchet.ledger.events import EventFilter, latest
from ratchet.ledger.questions import pending_approvals
from ratchet.ledger.runs import get_run, latest_attempts, latest_steps, list_runs
from ratchet.operations import described, filled

if TYPE_CHECKING:
    from ratchet.config.workflow_settings import Agents
    from ratchet.ledger import ArtifactStore, Attempt, Event, Run, Transaction

LONGEST = 4_000
_CUT = " …"
_LAST_RUNS = 5


def bounded(text: str | None) -> str | None:
    return text if text is None or len(text) <= LONGEST else f"{text[:LONGEST]}{_CUT}"


@dataclass(frozen=True, slots=True)
class _VersionFacts:
    id: int
    version: str = field(metadata=described("the number in its metadata.json, which variants may share"))
    commit: str
    parent: str | None = field(metadata=described("the commit that it was made from"))
    is_current: bool
    status: VersionStatus
    reason: str | None
    summary: str
    run: int | None
    simulated: bool
    created_at: int
    promoted_at: int | None

    @classmethod
    def of(cls, version: AgentVersion, agent: AgentRow, /, **more: Any) -> Self:
        return filled(
            cls,
            version,
            is_current=version.commit == agent.current,
            reason=bounded(version.reason),
            summary=bounded(version.summary),
            run=version.run_id,
            **{"tools": [str(tool["name"]) for tool in version.tools], **more},
        )


@dataclass(frozen=True, slots=True)
class AgentVersionAnswer(_VersionFacts):
    """`tools` are the names of its Runner's tools."""

    tools: list[str]


@dataclass(frozen=True, slots=True)
class ListedVersion(AgentVersionAnswer):
    """`on_line` says that it is the current version or one that led to it; others are variants, or were rolled back."""

    on_line: bool
    tag: str | None


@dataclass(frozen=True, slots=True)
class WholeVersion(_VersionFacts):
    """A version with its tools, as its Runner lists them."""

    tools: list[ToolShape]
    on_line: bool
    tag: str | None
    directory: str


@dataclass(frozen=True, slots=True)
class AgentRunAnswer:
    """A creation or a feedback. `result` says what was decided, once it is completed."""

    run: int
    action: str | None
    status: RunStatus
    reason: str | None
    message: str | None
    severity: str | None
    source: str | None
    result: Any
    simulated: bool
    used_recording: bool
    created_at: int
    ended_at: int | None

    @classmethod
    def of(cls, run: Run, /, **more: Any) -> Self:
        spec = run.spec if isinstance(run.spec, dict) else {}
        given = {name: spec.get(name) for name in ("action", "severity", "source")}
        texts = {"reason": bounded(run.reason), "message": bounded(spec.get("message"))}
        return filled(cls, run, run=run.id, **given, **texts, **more)


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """`version` and `commit` are those of the version that its address leads to; `pinned` holds it there."""

    name: str
    description: str
    status: AgentStatus
    reason: str | None
    version: str | None
    commit: str | None
    pinned: bool
    engine: str | None
    model: str | None
    simulated: bool
    created_at: int
    updated_at: int
    approval: str | None = field(
        metadata=described("when a person is asked about a change; as agents.approval says if null")
    )

    @classmethod
    def of(cls, agent: AgentRow, current: AgentVersion | None, /, **more: Any) -> Self:
        return filled(
            cls,
            agent,
            description=bounded(agent.description),
            reason=bounded(agent.reason),
            version=None if current is None else current.version,
            commit=agent.current,
            **more,
        )


@dataclass(frozen=True, slots=True)
class WaitingChange:
    """A change that waits for a person; `question` says what of the contract it breaks."""

    approval: int
    run: int | None
    question: str
    created_at: int


@dataclass(frozen=True, slots=True)
class WholeAgent(AgentAnswer):
    """An agent with its current version, where it answers, where it lies, and its last runs."""

    current: AgentVersionAnswer | None
    address: AgentAddress
    directory: str
    runs: list[AgentRunAnswer] = field(metadata=described("the last ones, newest first"))
    waiting: list[WaitingChange] = field(metadata=described("changes that a person must approve first"))
    trouble: list[str] = field(metadata=described("what is wrong with the current version at this moment"))


@dataclass(frozen=True, slots=True)
class AgentOutcome(AgentRunAnswer):
    """A run, the version that it began from, and the agent as it is now; no agent if that was deleted meanwhile."""

    from_version: str | None
    answered_otherwise: list[str] = field(
        metadata=described("recorded calls that the new version answers otherwise than the one before")
    )
    agent: WholeAgent | None


@dataclass(frozen=True, slots=True)
class ToolChanges:
    """Names of tools. `least` is the smallest step of the version's number that is honest about them."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...] = field(metadata=described("what was a right call before is none now"))
    widened: tuple[str, ...] = field(metadata=described("they take or answer more than before"))
    least: str


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """Two versions, what became of the tools, and the difference of the files as a patch."""

    agent: str
    old: AgentVersionAnswer
    new: AgentVersionAnswer
    tools: ToolChanges
    files: list[str]
    diff: str
    is_cut: bool = field(
        metadata=described("whether the patch or the list of files is longer than what is sent")
    )


def versions(
    tx: Transaction, name: str, *, before: int | None = None, limit: int = 50
) -> list[ListedVersion]:
    """Versions, newest first; pass the last `id` as `before` for the next page. Raises `NotFound`."""
    agent = get_agent(tx, name)
    found = list_versions(tx, agent.id, before=before, limit=limit)
    line = line_of(tx, agent, down_to=found[-1].id) if found else set()
    tags = tags_of(tx, agent.id, found)
    return [
        ListedVersion.of(version, agent, on_line=version.commit in line, tag=tags[version.commit])
        for version in found
    ]


def one_version(tx: Transaction, home: Path, name: str, wanted: str) -> WholeVersion:
    """Raises `NotFound`."""
    agent = get_agent(tx, name)
    found = find_version(tx, agent, wanted)
    return WholeVersion.of(
        found,
        agent,
        on_line=found.commit in line_of(tx, agent, down_to=found.id),
        tag=str(tag_for(tx, agent.id, found.version, found.commit)),
        directory=str(place_of(home, name).version(found.commit)),
        tools=list(shapes_of(found.tools)),
    )


def graph(shown: Sequence[ListedVersion]) -> list[str]:
    """The commits of `versions` as lines beside them, as `git log --graph` draws them.

    `@` is the current version and `o` any other; a version is joined by `|` to the one it was made from, further down.
    """
    drawn: list[str] = []
    # What each column waits for: the commit that is drawn in it next.
    columns: list[str | None] = []
    for version in shown:
        own = _column(columns, version.commit)
        marks = ["|" if wanted is not None else " " for wanted in columns]
        marks[own] = "@" if version.is_current else "o"
        drawn.append(" ".join(marks).rstrip())
        columns = [None if wanted == version.commit else wanted for wanted in columns]
        if version.parent not in columns:
            columns[own] = version.parent
    return drawn


def _column(columns: list[str | None], commit: str) -> int:
    """The first column that waits for `commit`; else one that is free, made if there is none."""
    if commit in columns:
        return columns.index(commit)
    if None not in columns:
        columns.append(None)
    return columns.index(None)


def agent_runs(
    tx: Transaction, name: str, *, before: int | None = None, limit: int = 50
) -> list[AgentRunAnswer]:
    """The runs on the agent of that name, newest first; pass the last `run` as `before` for the next page.

    A name that was given again after a deletion has the runs of both.
    """
    found = list_runs(tx, kind=RUN_KIND, name=name, before=before, limit=limit)
    return list(map(AgentRunAnswer.of, found))


def agents(tx: Transaction, *, after: str = "", limit: int = 100) -> list[AgentAnswer]:
    """Agents by their names, those after `after`."""
    found = with_blocked(tx, list_agents(tx, after=after, limit=limit))
    current = current_versions(tx, found)
    return [AgentAnswer.of(agent, current.get(agent.id)) for agent in found]


def one_agent(tx: Transaction, home: Path, settings: Agents, name: str) -> WholeAgent:
    """Raises `NotFound`."""
    [agent] = with_blocked(tx, [get_agent(tx, name)])
    current = current_versions(tx, [agent]).get(agent.id)
    address = addresses(home, settings, name)
    return WholeAgent.of(
        agent,
        current,
        address=address,
        directory=str(place_of(home, name).root),
        current=None if current is None else AgentVersionAnswer.of(current, agent),
        runs=agent_runs(tx, name, limit=_LAST_RUNS),
        waiting=[
            WaitingChange(each.id, each.run_id, each.question, each.created_at)
            for each in pending_approvals(tx, kind=RUN_KIND, name=name)
        ],
        trouble=[] if current is None else list(_trouble(tx, name, current, is_up=address.is_up)),
    )


# Of all agents; what crashes is told of again and again.
_NEWS = 200


def _trouble(tx: Transaction, name: str, current: AgentVersion, *, is_up: bool) -> Iterator[str]:
    """What the host told of a version last: that it is given up, that it is not up again, what it fences off."""
    if current.status is VersionStatus.QUARANTINED:
        yield f"version {current.version} is quarantined, and every call of it is refused: {current.reason}"
        return
    if not is_up:
        return

    def news(kind: str) -> list[Event]:
        found = latest(tx.connection, where=EventFilter(type=f"agent.{kind}"), limit=_NEWS)
        return [
            event
            for event in found
            if (event.data.get("agent"), event.data.get("commit")) == (name, current.commit)
        ]

    crashed = max(news("crashed"), key=lambda event: event.id, default=None)
    started = max((event.id for event in news("started")), default=0)
    if crashed is not None and crashed.id > started:
        reason = str(crashed.data.get("reason")).partition("\n")[0]
        yield f"its {crashed.data.get('server')} has crashed, and is being started again: {reason}"
    fenced: dict[str, int] = {}
    for event in news("fenced"):
        until = event.at + round(1000 * float(event.data.get("seconds", 0)))
        if until > tx.now:
            tool = f"{event.data.get('server')}.{event.data.get('tool')}"
            fenced[tool] = max(until, fenced.get(tool, until))
    for tool, until in sorted(fenced.items()):
        seconds = max(1, (until - tx.now) // 1000)
        yield f"{tool} ended its server again and again, and is fenced off for {seconds} s more; the others answer"


_LOOKED_AT = 5


def checks(
    tx: Transaction, artifacts: ArtifactStore, name: str, version: str | None = None
) -> dict[str, Any] | None:
    """The checks of a version, of the current one if none is named, in their order; None if none are on record.

    Each has its `outcome`, its `seconds` and what was seen; the canary calls have their `answers`.
    """
    found = find_version(tx, get_agent(tx, name), version or "current")
    attempt = None if found.run_id is None else _passed(tx, found.run_id)
    if attempt is None:
        return None
    return {
        "version": found.version,
        "commit": found.commit,
        "attempt": attempt.id,
        "reason": attempt.verdict.get("reason"),
        "checks": sections(artifacts, attempt.verdict.get("report")),
    }


def _passed(tx: Transaction, run_id: int) -> Attempt | None:
    for step in latest_steps(tx, run_id, limit=_LOOKED_AT):
        for attempt in latest_attempts(tx, step.id, limit=_LOOKED_AT):
            if attempt.outcome is Outcome.PASSED and isinstance(attempt.verdict, dict):
                return attempt
    return None


def sections(artifacts: ArtifactStore, report: Any) -> list[dict[str, Any]]:
    """What a report says of each check. None where the report was deleted to make room, or is no report of ours."""
    try:
        sections = json.loads(artifacts.read(str(report)))["checks"]
        return [{"check": name, **section} for name, section in sections.items()]
    except (RatchetError, ValueError, LookupError, TypeError, AttributeError):
        return []


MOST_DIFF = 1_000_000
_MOST_FILES = 1_000


@dataclass(frozen=True, slots=True)
class ComparedVersions:
    """Two versions of an agent, found in the ledger; `comparison` reads the rest from its repository."""

    agent: AgentRow
    old: AgentVersion
    new: AgentVersion


def find_compared(
    tx: Transaction, name: str, old: str | None = None, new: str | None = None
) -> ComparedVersions:
    """The versions to compare. `new` is the current one if it is not named, and `old` what `new` was made from.

    Raises `NotFound`, and `Conflict` for a first version, which was made from nothing.
    """
    agent = get_agent(tx, name)
    latter = find_version(tx, agent, "current" if new is None else new)
    former = _parent(tx, agent, latter) if old is None else find_version(tx, agent, old)
    return ComparedVersions(agent, former, latter)


def comparison(home: Path, compared: ComparedVersions) -> VersionComparison:
    """A very long patch is cut, which `is_cut` says. Bytes that are no text are marked."""
    old, new = compared.old, compared.new
    # Reads git, which no other view does.
    from ratchet.workspaces import Repository

    with Repository.open(place_of(home, compared.agent.name).repository) as repository:
        files = [change.path for change in repository.changes(old.commit, new.commit)]
        patch = repository.diff(old.commit, new.commit)
    text = decoded(exact_bytes(patch))
    return VersionComparison(
        agent=compared.agent.name,
        old=AgentVersionAnswer.of(old, compared.agent),
        new=AgentVersionAnswer.of(new, compared.agent),
        tools=_tool_changes(old, new),
        files=files[:_MOST_FILES],
        diff=text[:MOST_DIFF],
        is_cut=len(text) > MOST_DIFF or len(files) > _MOST_FILES,
    )


def _parent(tx: Transaction, agent: AgentRow, version: AgentVersion) -> AgentVersion:
    if version.parent is None:
        raise Conflict(
            f"version {version.version} of {agent.name} is a first one, made from nothing",
            hint=f"name two versions; `ratchet agent versions {agent.name}` lists them",
        )
    return get_version(tx, agent.id, version.parent)


def _tool_changes(old: AgentVersion, new: AgentVersion) -> ToolChanges:
    changes = changes_since(old, new.tools, new.offers)
    return ToolChanges(**asdict(changes), least=str(changes.least))


def outcome(tx: Transaction, home: Path, settings: Agents, run_id: int) -> AgentOutcome:
    run = get_run(tx, run_id)
    try:
        agent = one_agent(tx, home, settings, run.name)
    except NotFound:
        return AgentOutcome.of(run, from_version=None, answered_otherwise=[], agent=None)
    agent_id = get_agent(tx, run.name).id
    commit = run.result.get("commit") if isinstance(run.result, dict) else None
    made = version_at(tx, agent_id, commit) if commit else None
    # The version that the run's own version was made from.
    parent = version_at(tx, agent_id, made.parent) if made is not None and made.parent else None
    replay = (made.certificate or {}).get("replay") if made is not None else None
    return AgentOutcome.of(
        run,
        from_version=None if parent is None else parent.version,
        answered_otherwise=answered_otherwise(replay or {}),
        agent=agent,
    )


def answered_otherwise(replay: Mapping[str, Any]) -> list[str]:
    """The calls of a replay whose answers differ, with both."""
    found = replay.get("differences", ())
    if not found:
        return []
    # Loads what runs versions, and few changes need it.
    from ratchet.agents.checks.replay import difference

    return [difference(each["call"], each["before"], each["after"]) for each in found]
