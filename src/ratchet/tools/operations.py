"""The operations on tools that need nothing but tools; `ratchet.workflows.tool_operations` has the others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from ratchet.kernel import Misuse, NotFound
from ratchet.ledger.runs import get_run
from ratchet.ledger.tools import (
    CallStats,
    ToolVersionStatus,
    VersionRow,
    call_of_step,
    call_stats,
    list_versions,
    score_call,
    tools_by_id,
    versions_by_id,
)
from ratchet.operations import (
    MAX_ID,
    Listing,
    McpTool,
    NameWindow,
    Param,
    Window,
    described,
    filled,
    line_of,
    operation,
)
from ratchet.runtime.call import Call
from ratchet.tools.definition import ToolType, full_name
from ratchet.tools.registry import Toolbox, ToolVersion, open_toolbox
from ratchet.tools.sources import FOLDER_NAME, SUFFIXES

if TYPE_CHECKING:
    from ratchet.ledger import Transaction
    from ratchet.tools.search import ToolChoice

ToolName = Annotated[
    str,
    Param(
        "The name of a tool; WORKFLOW/TOOL for one that a workflow brings with it, or its file beside the workflow.",
        metavar="TOOL",
        longest=200,
        read="ratchet.tools.operations:located",
        within="workflow",
        outside="The name of a tool.",
    ),
]
OwnName = Annotated[str, Param("The name of a tool.", metavar="TOOL", longest=200)]
Version = Annotated[
    str | None,
    Param("This version; the one that is called if not given.", metavar="VERSION", longest=200),
]
TypeFilter = Annotated[ToolType | None, Param("Only of this type.")]
TagFilter = Annotated[str | None, Param("Only with this tag.", metavar="TAG", longest=200)]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """A tool in the version that is called. `problem` says why it cannot be, if it cannot."""

    tool: str
    type: ToolType
    version: str
    hash: str
    pinned: bool
    source: str
    description: str
    tags: list[str]
    problem: str | None
    broken: str | None = field(
        kw_only=True, metadata=described("that it fails its own examples, as far as they were run")
    )

    @classmethod
    def of(cls, found: ToolVersion, **more: Any) -> Self:
        tool = found.tool
        return filled(
            cls,
            found,
            tool=found.name,
            type=tool.type,
            description=tool.description,
            tags=list(tool.tags),
            problem=tool.refusal,
            **more,
        )


@dataclass(frozen=True, slots=True)
class WholeToolAnswer(ToolAnswer):
    definition: Any
    warnings: list[str]
    examples: int
    stats: CallStats


@dataclass(frozen=True, slots=True)
class ChoiceReason:
    part: str
    points: float
    why: str


@dataclass(frozen=True, slots=True)
class ToolChoiceAnswer(ToolAnswer):
    """A tool that a search has found. `fitness` is the sum of the points of its `reasons`."""

    likeness: float
    fitness: float
    reasons: list[ChoiceReason]


@dataclass(frozen=True, slots=True)
class ToolVersionAnswer:
    """`origin` says by whom it was made, `reason` why it was promoted or refused."""

    id: int
    version: str
    hash: str
    status: ToolVersionStatus
    is_called: bool
    change_type: str
    origin: str
    parent: int | None
    reason: str | None
    run_id: int | None
    simulated: bool
    calls: int
    failures: int
    created_at: int
    promoted_at: int | None
    approvable: bool = field(metadata=described("whether it is better and only an answer differs"))

    @classmethod
    def of(cls, row: VersionRow, *, is_called: bool) -> Self:
        return filled(cls, row, is_called=is_called, parent=row.parent_id)


@dataclass(frozen=True, slots=True)
class ToolFeedback:
    tool: str
    task: str
    good: bool = field(metadata={"description": "whether it served"})


@dataclass(frozen=True, slots=True)
class ScoredCall:
    """A call that was scored. `tool` and `version` made it."""

    run_id: int
    step: str
    tool: str
    version: str
    score: float


def located(call: Call, text: str) -> str:
    """The id of a tool; one that is named by its file beside a workflow is then known to the call.

    Raises `Misuse` for a file that is none of a tool.
    """
    path = Path(text)
    if path.suffix not in SUFFIXES:
        return text
    whole = path.resolve()
    folder = next((each for each in whole.parents if each.name == FOLDER_NAME), None)
    if folder is None or not whole.is_file():
        raise Misuse(
            f"{text} is no file of a folder `{FOLDER_NAME}`",
            hint=f"a workflow's own tools lie in `{FOLDER_NAME}` beside it; `ratchet tool add FILE` takes any other",
        )
    from ratchet.tools.sources import read_tool_file

    call.kept["folders"] = (folder,)
    return read_tool_file(whole, within=folder).id


@contextlib.contextmanager
def opened_toolbox(call: Call) -> Iterator[Toolbox]:
    """The tools as they are now. What the last call has read of them is kept for the next one."""
    kept, ledger = call.kept, call.ledger
    opened = open_toolbox(
        ledger,
        call.settings,
        call.home,
        folders=kept.get("folders", ()),
        earlier=kept.get("toolbox"),
    )
    kept["toolbox"] = opened
    with contextlib.closing(opened):
        yield opened


def get_tool(call: Call, tool: str, version: str | None = None) -> ToolVersion:
    with opened_toolbox(call) as toolbox:
        return toolbox.get(tool, version)


@operation("tool list", "GET /tools", tool=McpTool("list_tools", "List tools"))
def list_(
    call: Call, window: NameWindow, type: TypeFilter = None, tag: TagFilter = None
) -> Listing[ToolAnswer]:
    """List the tools of Ratchet's own toolbox, by name."""
    with opened_toolbox(call) as toolbox:
        found = toolbox.page(after=window.after, limit=window.one_more, type=type, tag=tag)
    return window.cut([ToolAnswer.of(each) for each in found], "tool")


@operation(
    "tool search",
    "GET /tools/search",
    tool=McpTool("search_tools", "Search tools", is_resource=False),
    enveloped=False,
)
def search(
    call: Call,
    q: Annotated[str, Param("the task", shortest=1, longest=2000, argument=True)],
    type: TypeFilter = None,
    tag: TagFilter = None,
    limit: Annotated[int, Param("how many at most", least=1, most=50)] = 5,
) -> Listing[ToolChoiceAnswer]:
    """List the tools that fit a task best, best first, each with the reasons why."""
    return Listing(choices(call, q, limit, type=type, tags=() if tag is None else (tag,)))


def choices(
    call: Call, task: str, limit: int, *, type: ToolType | None, tags: Sequence[str]
) -> list[ToolChoiceAnswer]:
    with opened_toolbox(call) as toolbox:
        return [_choice(each) for each in toolbox.search(task, limit, type=type, tags=tags)]


def _choice(found: ToolChoice) -> ToolChoiceAnswer:
    return ToolChoiceAnswer.of(
        found.version,
        likeness=round(found.likeness, 4),
        fitness=round(found.fitness, 2),
        reasons=[
            ChoiceReason(part.name, round(part.points, 2), part.why)
            for part in sorted(found.parts, key=lambda part: -abs(part.points))
        ],
    )


@operation(
    "tool show",
    "GET /tools/{tool}",
    tool=McpTool("get_tool", "Show a tool"),
    examples=[
        "ratchet tool show split_words",
        "ratchet tool show split_words --version 1.0.0 --json | jq .definition",
    ],
    see=["tool versions", "tool run"],
)
def show(call: Call, tool: ToolName, version: Version = None) -> WholeToolAnswer:
    """Show one tool: what it takes, what it answers, how it has done."""
    found = get_tool(call, tool, version)
    with call.read() as tx:
        return whole(tx, found)


def whole(tx: Transaction, found: ToolVersion) -> WholeToolAnswer:
    """A tool with its definition, and how this version has done."""
    return WholeToolAnswer.of(
        found,
        definition=found.tool.data,
        warnings=list(found.tool.warnings),
        examples=len(found.tool.examples),
        stats=call_stats(tx, found.id),
    )


@operation(
    "tool versions",
    "GET /tools/{tool}/versions",
    tool=McpTool("list_tool_versions", "List the versions of a tool"),
    examples=[
        "ratchet tool versions split_words",
        "ratchet tool versions split_words --json | jq -r '.[] | [.version, .status] | @tsv'",
    ],
    see=["tool pin", "tool rollback"],
    columns={
        "": lambda each: "@" if each.is_called else "o",
        "version": "version",
        "status": "status",
        "from": "origin",
        "calls": "calls",
        "failures": lambda each: each.failures or None,
        "made": "created_at",
        "reason": "reason",
    },
    empty="It has no versions.",
)
def versions(call: Call, window: Window, tool: ToolName) -> Listing[ToolVersionAnswer]:
    """List the versions of a tool, newest first.

    @ is the one that is called. Variants that were tried and refused are listed as well, with the reason.
    """
    called = get_tool(call, tool)
    with call.read() as tx:
        return window.cut(versions_of(tx, called, before=window.before, limit=window.one_more))


def versions_of(
    tx: Transaction, called: ToolVersion, *, before: int | None = None, limit: int = 50
) -> list[ToolVersionAnswer]:
    found = list_versions(tx, called.tool_id, before=before, limit=limit)
    return [ToolVersionAnswer.of(row, is_called=row.id == called.id) for row in found]


@operation(
    "tool pin",
    "POST /tools/{tool}/pin",
    tool=McpTool("pin_tool", "Pin a tool", repeatable=True),
    examples=["ratchet tool pin split_words 1.0.0"],
    see=["tool unpin", "tool versions"],
    done="{it.tool} is pinned at {it.version}",
    then="`ratchet tool unpin {it.tool}` unpins it",
)
def pin(
    call: Call,
    tool: ToolName,
    version: Annotated[
        str,
        line_of(
            "A version that `ratchet tool versions` lists.", "VERSION", argument=True, outside="the version"
        ),
    ],
) -> ToolAnswer:
    """Hold a tool at a version.

    Every workflow calls that version, whatever its definition says later and whatever is promoted, until it is
    unpinned. What is pinned is not evolved.
    """
    with opened_toolbox(call) as toolbox:
        return ToolAnswer.of(toolbox.pin(tool, version))


@operation(
    "tool unpin",
    "POST /tools/{tool}/unpin",
    tool=McpTool("unpin_tool", "Unpin a tool", repeatable=True),
    examples=["ratchet tool unpin split_words"],
    see=["tool pin"],
    done="{it.tool} follows what is promoted again, and is {it.version} now",
)
def unpin(call: Call, tool: ToolName) -> ToolAnswer:
    """Let a tool follow its newest version again."""
    with opened_toolbox(call) as toolbox:
        return ToolAnswer.of(toolbox.unpin(tool))


@operation(
    "tool feedback",
    "POST /tools/{tool}/feedback",
    tool=McpTool("rate_tool", "Rate a tool"),
    examples=[
        'ratchet tool feedback split_words "count the words of a poem" --good',
        'ratchet tool feedback split_words "split Chinese text" --bad',
    ],
    see=["tool search"],
    done="The feedback on {it.tool} is recorded",
    status=204,
)
def feedback(
    call: Call,
    tool: OwnName,
    task: Annotated[
        str,
        Param("What it was used for, in words.", metavar="TASK", shortest=1, longest=10_000, argument=True),
    ],
    good: Annotated[bool, Param("Whether it served.", flag="--good/--bad")],
) -> ToolFeedback:
    """Say how well a tool has served.

    It counts when tools for a similar task are searched.
    """
    with opened_toolbox(call) as toolbox:
        toolbox.record_feedback(tool, good, task)
    return ToolFeedback(tool, task, good)


@operation(
    "tool score",
    "POST /tools/score",
    tool=McpTool("score_call", "Score a call of a tool", repeatable=True),
    examples=["ratchet tool score 12 summarise 0.2", "ratchet tool score 12 'translate[3]' 1"],
    see=["workflow show", "tool list", "workflow evolve"],
    done="{it.tool} {it.version} has the score {it.score:g} for {it.step} of run {it.run_id}",
)
def score(
    call: Call,
    run_id: Annotated[int, Param("The number of a run.", metavar="RUN", least=1, most=MAX_ID, argument=True)],
    step: Annotated[
        str,
        Param(
            "The step, as `ratchet workflow show RUN` names it.", metavar="STEP", longest=1000, argument=True
        ),
    ],
    score: Annotated[
        float,
        Param("How good its answer was, from 0 to 1.", metavar="SCORE", least=0, most=1, argument=True),
    ],
) -> ScoredCall:
    """Say how good the answer of a step was.

    An answer that was scored high is right when variants of the tool are judged, one that was scored low is no model
    for them, and a tool whose calls are scored low is a candidate for evolution. A later score replaces an earlier one.
    """
    with call.write() as tx:
        get_run(tx, run_id)
        found = call_of_step(tx, run_id, step)
        if found is None or found.id is None:
            error = NotFound(f"call of a tool in run {run_id} by step", step)
            error.hint = "a step that used an earlier result made none; score the run that made it"
            raise error
        score_call(tx, found.id, score)
        row = versions_by_id(tx, [found.version_id])[found.version_id]
        named = tools_by_id(tx, [found.tool_id]).get(found.tool_id)
        name = str(found.tool_id) if named is None else full_name(named.name, named.folder)
        told = {"tool": name, "version": row.version, "step": step, "score": score}
        tx.event("tool.scored", message=f"{name} {row.version}: {score:g}", run_id=run_id, data=told)
    return ScoredCall(run_id, step, name, row.version, score)


def best_first(tx: Transaction, found: Sequence[ToolVersion]) -> list[tuple[ToolVersion, float | None]]:
    """Tools with the mean score of their calls, the best first; one that nobody scored by the part that went well."""
    rows = versions_by_id(tx, [each.id for each in found])
    scored = [(each, _score(rows[each.id])) for each in found]
    return sorted(scored, key=lambda each: (each[1] is None, -(each[1] or 0.0), each[0].name))


def _score(row: VersionRow) -> float | None:
    if row.scored:
        return row.score_sum / row.scored
    return 1 - row.failures / row.calls if row.calls else None


OPERATIONS = (list_, search, show, versions, pin, unpin, feedback, score)
