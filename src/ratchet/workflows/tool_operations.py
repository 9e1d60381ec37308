"""The operations on tools that may run a workflow: calling, testing, improving them and rolling them back."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from ratchet.kernel import NotFound
from ratchet.ledger import to_json
from ratchet.ledger.tools import get_version, note_examples
from ratchet.ledger.usage import total
from ratchet.operations import McpTool, Param, described, line_of, operation
from ratchet.runtime.call import Call
from ratchet.tools.call import CALL_SECONDS, Occasion, ToolCallFailed, ToolResult, ToolUse, no_listener
from ratchet.tools.definition import read_name
from ratchet.tools.invocation import test_tool as try_examples
from ratchet.tools.invocation import use_tool
from ratchet.tools.operations import ToolAnswer, ToolName, Version, get_tool
from ratchet.tools.registry import ToolVersion
from ratchet.workflows.evolution import approve_version, roll_back_tool
from ratchet.workflows.operations import Engine, Model, Simulated, Why, WorkflowRunAnswer, start_evolution
from ratchet.workflows.runs.tool_workflow import with_workflows

Timeout = Annotated[float, Param("seconds to wait for an answer", above=0, most=3600)]
Listener = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ToolCallAnswer:
    """What came of a call. One that failed has an `error`, and a `hint` with the next step to take."""

    tool: str
    version: str
    ok: bool
    value: Any
    error: str | None
    hint: str | None
    metrics: dict[str, Any]
    said: str = field(metadata=described("the end of what it wrote to stderr"))
    simulated: bool


@dataclass(frozen=True, slots=True)
class TestedExample:
    input: Any
    passed: bool
    checked: bool = field(metadata=described("whether the definition says what must come of it"))
    expected: Any
    got: Any
    why: str | None
    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TestedToolAnswer:
    """What the examples of a tool came to. One without examples has not passed."""

    tool: str
    version: str
    passed: bool
    examples: list[TestedExample]


@operation(
    "tool run",
    "POST /tools/{tool}/run",
    tool=McpTool("run_tool", "Run a tool", destructive=True, outside=True),
)
async def run(
    call: Call,
    tool: ToolName,
    inputs: Annotated[dict[str, Any] | None, Param("what it is given, by name")] = None,
    version: Version = None,
    timeout: Timeout = CALL_SECONDS,  # noqa: ASYNC109  it is what callers of the API say
) -> ToolCallAnswer:
    """Call a tool and get its answer. One that failed answers with `ok` false; 429 when it may not be called now."""
    chosen = await asyncio.to_thread(get_tool, call, tool, version)
    return await call_version(call, chosen, inputs or {}, timeout)


async def call_version(
    call: Call,
    chosen: ToolVersion,
    values: Mapping[str, Any],
    seconds: float,
    listen: Listener = no_listener,
) -> ToolCallAnswer:
    """Call this version of a tool. That it failed is in the answer."""
    came: ToolResult | ToolCallFailed
    try:
        came = await use_tool(chosen, values, _occasion(call, seconds, listen))
    except ToolCallFailed as error:
        came = error
    failed = came if isinstance(came, ToolCallFailed) else None
    result = came if isinstance(came, ToolResult) else None
    return ToolCallAnswer(
        tool=chosen.name,
        version=chosen.version,
        ok=failed is None,
        value=None if result is None else result.value,
        error=None if failed is None else str(failed),
        hint=None if failed is None else failed.hint,
        metrics=_measured(came.use),
        said=came.said,
        simulated=result is not None and result.simulated,
    )


@operation(
    "tool try",
    "POST /tools/{tool}/test",
    tool=McpTool("test_tool", "Test a tool", destructive=True, outside=True),
)
async def examples(
    call: Call,
    tool: ToolName,
    timeout: Timeout = CALL_SECONDS,  # noqa: ASYNC109  it is what callers of the API say
) -> TestedToolAnswer:
    """Run the examples of a tool as tests."""
    return await try_version(call, await asyncio.to_thread(get_tool, call, tool), timeout)


async def try_version(call: Call, chosen: ToolVersion, seconds: float) -> TestedToolAnswer:
    tested = await try_examples(chosen.tool, _occasion(call, seconds))
    if (failed := tested.failed) is not None:
        with call.write() as tx:
            note_examples(tx, chosen.id, failed)
    tried = [
        TestedExample(
            dict(each.input),
            each.passed,
            each.checked,
            each.expected,
            each.got,
            each.why,
            _measured(each.use),
        )
        for each in tested.results
    ]
    return TestedToolAnswer(chosen.name, chosen.version, tested.passed, tried)


def _occasion(call: Call, seconds: float, listen: Listener = no_listener) -> Occasion:
    return with_workflows(Occasion(call.runtime, actor=call.actor, seconds=seconds, listen=listen))


def _measured(use: ToolUse) -> dict[str, Any]:
    return {name: value for name, value in asdict(use).items() if value is not None}


@operation(
    "tool rollback",
    "POST /tools/{tool}/rollback",
    tool=McpTool("rollback_tool", "Roll a tool back"),
    examples=["ratchet tool rollback split_words"],
    see=["tool versions"],
    done="{it.tool} is back at {it.version}",
)
def rollback(call: Call, tool: ToolName) -> ToolAnswer:
    """Take a tool back to the version before.

    What was taken back stays on record and is not promoted again. A pinned tool is not moved.
    """
    roll_back_tool(call.runtime, **_own(call, tool), actor=call.actor, request_id=call.request_id)
    return ToolAnswer.of(get_tool(call, tool))


@operation(
    "tool approve",
    "POST /tools/{tool}/approve",
    tool=McpTool("approve_tool", "Approve a version of a tool"),
    examples=["ratchet tool approve split_words 1.1.0"],
    see=["tool versions", "tool rollback"],
    done="{it.tool} is {it.version} now",
)
def approve(
    call: Call,
    tool: ToolName,
    version: Annotated[
        str,
        line_of(
            "A version that was refused for a difference.", "VERSION", argument=True, outside="the version"
        ),
    ],
) -> ToolAnswer:
    """Take a version that was better but answers some input differently.

    `ratchet tool versions` shows that input with both answers. Other refused versions cannot be approved. An example in
    the definition of the tool is the better way to say which answer is right: it counts for all later versions, too.
    """
    approve_version(call.runtime, **_own(call, tool), version=version, actor=call.actor)
    return ToolAnswer.of(get_tool(call, tool))


@dataclass(frozen=True, slots=True)
class ToolCertificateAnswer:
    """What a version of a tool was promoted on."""

    tool: str
    version: str
    hash: str
    parent: str
    parent_hash: str
    promoted_at: int
    reason: str | None = field(metadata=described("why it was promoted, and by whom if a person approved it"))
    summary: str = field(metadata=described("what its author says of the change"))
    proposed_by: dict[str, Any] = field(metadata=described("engine, run, attempt and commit"))
    patch_sha256: str = field(metadata=described("of its parent's definition and its own, as JSON lines"))
    judge_hash: str | None = field(
        metadata=described("of the examples, held-out inputs and rules that decided")
    )
    outcome: str
    verdict: str | None = field(metadata=described("what the judge said"))
    improvement: float
    measurements: dict[str, float]
    report: str | None = field(metadata=described("the artifact with every answer and measurement"))
    cost: dict[str, Any]
    simulated: bool


@operation(
    "tool certificate",
    "GET /tools/{tool}/certificate",
    tool=McpTool("get_tool_certificate", "Show what a version of a tool was promoted on"),
    examples=["ratchet tool certificate split_words", "ratchet tool certificate split_words 1.1.0 --json"],
    see=["tool versions", "tool rollback"],
    columns={
        "tool": "tool",
        "version": "version",
        "parent": "parent",
        "promoted": "promoted_at",
        "reason": "reason",
        "change": "summary",
        "proposed by": lambda it: ", ".join(f"{key} {value}" for key, value in it.proposed_by.items()),
        "patch sha256": "patch_sha256",
        "judged by": lambda it: f"{(it.judge_hash or '')[:12]}: {it.outcome}: {it.verdict}",
        "improvement": lambda it: f"{it.improvement:.1%}",
        "report": "report",
        "cost": lambda it: (
            f"{it.cost['input_tokens'] + it.cost['output_tokens']} tokens, ${it.cost['cost_microusd'] / 1e6:.4f}"
        ),
        "simulated": lambda it: it.simulated or None,
    },
)
def certificate(
    call: Call,
    tool: ToolName,
    version: Annotated[
        str | None, line_of("The one that is called if not given.", "VERSION", argument=True)
    ] = None,
) -> ToolCertificateAnswer:
    """Show what a version of a tool was promoted on.

    Its parent, the hash of the change, who proposed it, the judge with its hash and verdict, the measurements, who
    approved it, and what it cost. 404 for a version that was not promoted by evolution.
    """
    chosen = get_tool(call, tool, version)
    with call.read() as tx:
        row = get_version(tx, chosen.id)
        kept = row.verdict
        if kept is None or row.promoted_at is None or row.parent_id is None:
            raise NotFound("certificate of version", f"{row.version} of {tool}")
        parent = get_version(tx, row.parent_id)
        used = total(tx, "attempt", kept["attempt_id"])
    patch = "\n".join(to_json(each.definition) for each in (parent, row))
    return ToolCertificateAnswer(
        tool=tool,
        version=row.version,
        hash=row.hash,
        parent=parent.version,
        parent_hash=parent.hash,
        promoted_at=row.promoted_at,
        reason=row.reason,
        summary=kept["summary"],
        proposed_by={
            "engine": kept["engine"],
            "run": row.run_id,
            "attempt": kept["attempt_id"],
            "commit": kept["commit"],
        },
        patch_sha256=hashlib.sha256(patch.encode()).hexdigest(),
        judge_hash=kept["judge_hash"],
        outcome=kept["outcome"],
        verdict=kept["reason"],
        improvement=kept["improvement"],
        measurements=kept["measurements"],
        report=kept["report"],
        cost={**asdict(used), "cost_usd": used.whole_cost_usd},
        simulated=row.simulated,
    )


@operation(
    "tool evolve",
    "POST /tools/{tool}/evolve",
    tool=McpTool("evolve_tool", "Improve a tool", outside=True, queues=True),
    done="Run {it.run_id} rewrites it",
    status=202,
    location="/workflows/runs/{it.run_id}",
)
def evolve(
    call: Call,
    tool: ToolName,
    engine: Engine = None,
    model: Model = None,
    why: Why = None,
    simulated: Simulated = False,
) -> WorkflowRunAnswer:
    """Have a tool rewritten; it is replaced only by what proves better.

    409 when it is pinned, 424 when its engine cannot work now.
    """
    own = _own(call, tool)
    return start_evolution(
        call, own["tool_id"], own["folder"], engine=engine, model=model, why=why, simulated=simulated
    )


def _own(call: Call, tool: str) -> dict[str, str]:
    """A tool that there is, as the ledger keeps it."""
    return {"tool_id": read_name(tool)[0], "folder": get_tool(call, tool).folder}


OPERATIONS = (run, examples, rollback, approve, certificate, evolve)
