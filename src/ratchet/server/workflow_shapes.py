"""What the endpoints of workflows and tools answer with: the same keys that the command line prints with `--json`."""

from __future__ import annotations

from pydantic import BaseModel, Field

from ratchet.kernel import RunStatus
from ratchet.server.fields import Foreign, Json, Shape
from ratchet.server.research_shapes import Instant


class WorkflowRun(Shape):
    """A run in short. `action` says whether it ran a workflow, planned one, or made tools better."""

    run_id: int
    workflow: str
    action: str
    status: RunStatus
    reason: Foreign | None
    simulated: bool
    used_recording: bool
    created_at: Instant
    ended_at: Instant | None


class Step(Shape):
    """What became of a step. `reason` says why it was left out, `tries` how often it was tried."""

    status: str
    metrics: dict[str, Json]
    error: Foreign | None
    reason: Foreign | None
    hint: Foreign | None
    cached: bool
    tries: int


class Outcome(WorkflowRun):
    """What a run has come to. `outputs` has those that exist, also when it failed; `result` is for other actions."""

    error: Foreign | None = None
    outputs: dict[str, Json] = Field({}, description="by name")
    steps: dict[str, Step] = Field({}, description="by name: `clean`, `translate[3]`, `report/draft`")
    result: Json = None


class Workflow(Shape):
    """A saved workflow in short. `planned_by` is the run of the overseer that made it."""

    id: int
    name: str
    version: str
    hash: str
    description: str
    origin: str
    steps: int
    planned_by: int | None
    created_at: Instant


class ListedWorkflow(Workflow):
    last_run: WorkflowRun | None


class WholeWorkflow(Workflow):
    spec: Json
    waves: list[list[str]] = Field(description="the steps that could run at once, in turns")
    runs: list[WorkflowRun] = Field(description="the last ones, newest first")


class Checked(Shape):
    valid: bool
    problems: list[str] = Field(description="a sentence for each thing that is wrong")


class StepProfile(Shape):
    """A step as a mean over the runs. `path_share` is its part of the critical path, `time_share` of all time."""

    step: str
    tool: str | None
    calls: float
    wall_ms: float
    cpu_ms: float | None
    peak_bytes: int | None
    cost_microusd: float = Field(description="what is known of the cost")
    tokens: float
    unpriced_tokens: float = Field(description="those of unknown price; their cost comes on top")
    cached: float
    failed: float
    tries: float
    time_share: float
    cost_share: float
    path_share: float


class Advice(Shape):
    """A tool that could be better; `obstacle` says why it cannot be rewritten, if it cannot."""

    tool: str
    folder: str
    step: str
    calls: int
    quality: float
    path_share: float
    value: float
    why: str
    obstacle: str | None


class Profile(Shape):
    """Where time and money went. `evolve_next` is the most valuable tool that can be rewritten."""

    workflow: str
    runs: list[int]
    wall_ms: float
    cost_microusd: float = Field(description="what is known of the cost")
    tokens: float
    unpriced_tokens: float = Field(description="those of unknown price; their cost comes on top")
    steps: list[StepProfile]
    critical_path: list[str]
    path_ms: float
    advice: list[Advice]
    truncated: bool
    evolve_next: Advice | None


class Tool(Shape):
    """A tool in the version that is called. `problem` says why it cannot be, if it cannot."""

    tool: str
    type: str
    version: str
    hash: str
    pinned: bool
    source: str
    description: Foreign
    tags: list[str]
    problem: str | None


class ToolPage(BaseModel):
    items: list[Tool]
    next: str | None = Field(description="pass it as `after` for the next page; null at the end")


class Stats(Shape):
    """How a version has done over all its calls, and over the last ones. What was never measured is null."""

    runs: int
    failures: int
    success_rate: float | None
    mean_wall_ms: float | None
    cost_microusd: int = Field(description="what is known of the cost")
    tokens: int
    unpriced_tokens: int = Field(description="those of unknown price; their cost comes on top")
    mean_score: float | None
    recent: int
    recent_success_rate: float | None
    recent_wall_ms: float | None
    recent_p95_ms: float | None
    recent_peak_bytes: int | None
    recent_cost_microusd: float | None
    recent_score: float | None


class WholeTool(Tool):
    definition: Json
    warnings: list[str]
    examples: int
    stats: Stats


class Reason(Shape):
    part: str
    points: float
    why: str


class Choice(Tool):
    """A tool that a search has found. `fitness` is the sum of the points of its `reasons`."""

    likeness: float
    fitness: float
    reasons: list[Reason]


class ToolVersion(Shape):
    """`origin` says by whom it was made, `reason` why it was taken or refused."""

    id: int
    version: str
    hash: str
    status: str
    is_called: bool
    change_type: str
    origin: str
    parent: int | None
    reason: str | None
    run_id: int | None
    simulated: bool
    calls: int
    failures: int
    created_at: Instant
    promoted_at: Instant | None


class Answer(Shape):
    """What came of a call. One that failed has an `error`, and a `hint` with the next step to take."""

    tool: str
    version: str
    ok: bool
    value: Json
    error: Foreign | None
    hint: Foreign | None
    metrics: dict[str, Json]
    said: Foreign = Field(description="the end of what it wrote to stderr")
    simulated: bool


class TriedExample(Shape):
    input: Json
    passed: bool
    checked: bool = Field(description="whether the definition says what must come of it")
    expected: Json
    got: Json
    why: Foreign | None
    metrics: dict[str, Json]


class Tested(Shape):
    """What the examples of a tool came to. One without examples has not passed."""

    tool: str
    version: str
    passed: bool
    examples: list[TriedExample]
