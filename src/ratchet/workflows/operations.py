"""The operations on workflows and on what runs, plans and improves them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Self

from ratchet.kernel import NotFound, RunStatus
from ratchet.ledger.runs import Run, get_run, list_runs
from ratchet.ledger.workflows import SavedWorkflow, get_workflow, list_workflows
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

if TYPE_CHECKING:
    from ratchet.flowkit.spec import WorkflowSpec
    from ratchet.ledger import Transaction

RUN_KIND = "workflow"
LONGEST_SENTENCE = 16_000
"""Characters: as many as the memory compares by their meaning."""
_LAST_RUNS = 5
_SAME = ("status", "reason", "simulated", "used_recording", "created_at", "ended_at")

WorkflowName = Annotated[str, Param("The name of a saved workflow.", metavar="WORKFLOW", longest=200)]
WorkflowRunNumber = Annotated[int, number_of("The number of a run of a workflow.", "RUN")]
Spec = Annotated[dict[str, Any], Param("the workflow, as GET /workflows/schema describes it")]
SaveName = Annotated[str | None, line_of("the name to save it under; its workflow_id if not given")]
Engine = Annotated[str | None, line_of("who does it", engine=True)]
Model = Annotated[str | None, line_of()]
Simulated = Annotated[bool, Param("allow recorded answers; marks what comes of it")]
Why = Annotated[str | None, Param("what should be better", longest=10_000)]


@dataclass(frozen=True, slots=True)
class WorkflowRunAnswer:
    """A run in short. `action` says whether it ran a workflow, planned one, or made tools better."""

    run_id: int
    workflow: str
    action: str
    status: RunStatus
    reason: str | None
    simulated: bool
    used_recording: bool
    created_at: int
    ended_at: int | None

    @classmethod
    def of(cls, run: Run, **more: Any) -> Self:
        same = {name: getattr(run, name) for name in _SAME}
        return cls(**{"run_id": run.id, "workflow": run.name, "action": _action(run), **same, **more})

    @classmethod
    def at(cls, call: Call, run_id: int) -> Self:
        with call.read() as tx:
            return cls.of(get_run(tx, run_id))


@dataclass(frozen=True, slots=True)
class WorkflowStepAnswer:
    """What became of a step. `reason` says why it was left out, `tries` how often it was tried."""

    status: str
    metrics: dict[str, Any]
    error: str | None
    reason: str | None
    hint: str | None
    cached: bool
    tries: int


@dataclass(frozen=True, slots=True)
class OutcomeAnswer(WorkflowRunAnswer):
    """What a run has come to. `outputs` has those that exist, also when it failed; `result` is for other actions."""

    error: str | None = None
    outputs: dict[str, Any] = field(default_factory=dict, metadata=described("by name"))
    steps: dict[str, WorkflowStepAnswer] = field(
        default_factory=dict, metadata=described("by name: `clean`, `translate[3]`, `report/draft`")
    )
    result: Any = None


@dataclass(frozen=True, slots=True)
class WorkflowAnswer:
    """A saved workflow in short. `planned_by` is the run of the overseer that made it."""

    id: int
    name: str
    version: str
    hash: str
    description: str
    origin: str
    steps: int
    planned_by: int | None
    created_at: int

    @classmethod
    def of(cls, saved: SavedWorkflow, **more: Any) -> Self:
        steps = saved.spec.get("steps") if isinstance(saved.spec, dict) else None
        return filled(
            cls,
            saved,
            steps=len(steps) if isinstance(steps, list | dict) else 0,
            planned_by=saved.run_id,
            **more,
        )


@dataclass(frozen=True, slots=True)
class ListedWorkflowAnswer(WorkflowAnswer):
    last_run: WorkflowRunAnswer | None


@dataclass(frozen=True, slots=True)
class WholeWorkflowAnswer(WorkflowAnswer):
    spec: Any
    waves: list[list[str]] = field(metadata=described("the steps that could run at once, in turns"))
    runs: list[WorkflowRunAnswer] = field(metadata=described("the last ones, newest first"))


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    valid: bool
    problems: list[str] = field(metadata=described("a sentence for each thing that is wrong"))


@dataclass(frozen=True, slots=True)
class DeletedWorkflow:
    workflow: str
    forgotten: int
    deleted: bool = True


_COST = described("what is known of the cost")
_UNPRICED = described("those of unknown price; their cost comes on top")


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One step, as a mean over the runs that were looked at; null where nothing was measured.

    `wall_ms` is from its start to its end, all items of a list and all steps inside it included. `cached` and `failed`
    are parts of its calls. `time_share` is its part of all time that steps took, `path_share` of the critical path.
    """

    step: str
    tool: str | None
    calls: float
    wall_ms: float
    cpu_ms: float | None
    peak_bytes: int | None
    cost_microusd: float = field(metadata=_COST)
    tokens: float
    unpriced_tokens: float = field(metadata=_UNPRICED)
    cached: float
    failed: float
    tries: float
    time_share: float
    cost_share: float
    path_share: float


@dataclass(frozen=True, slots=True)
class EvolveAdvice:
    """A tool that could be better. `value` is how often it is used times what there is to win; `obstacle` says why it
    cannot be rewritten, if it cannot. `folder` is where the ledger keeps it."""

    tool: str
    folder: str
    step: str
    calls: int
    quality: float
    path_share: float
    value: float
    why: str
    obstacle: str | None


@dataclass(frozen=True, slots=True)
class WorkflowProfile:
    """Where time and money went. `path_ms` is how long the steps of the critical path took, one after the other.

    `advice` has the most valuable tool first, and `evolve_next` is the first one that can be rewritten. `truncated`
    says that a run had more steps than were looked at.
    """

    workflow: str
    runs: tuple[int, ...]
    wall_ms: float
    cost_microusd: float = field(metadata=_COST)
    tokens: float
    unpriced_tokens: float = field(metadata=_UNPRICED)
    steps: tuple[StepTimes, ...]
    critical_path: tuple[str, ...]
    path_ms: float
    advice: tuple[EvolveAdvice, ...]
    truncated: bool
    evolve_next: EvolveAdvice | None = field(init=False)

    def __post_init__(self) -> None:
        chosen = next((each for each in self.advice if each.obstacle is None and each.value > 0), None)
        object.__setattr__(self, "evolve_next", chosen)


def _action(run: Run) -> str:
    if isinstance(run.spec, dict) and "workflow" in run.spec:
        return "run"
    # The others are called after what they do: `plan:…`, `evolve:…`, `optimise`.
    return run.name.partition(":")[0]


@operation("workflow saved", "GET /workflows", tool=McpTool("list_workflows", "List workflows"))
def saved(call: Call, window: Window) -> Listing[ListedWorkflowAnswer]:
    """List the saved workflows, the last saved first, each with its last run."""
    with call.read() as tx:
        found = [
            ListedWorkflowAnswer.of(each, last_run=next(iter(runs_of(tx, each.name, limit=1)), None))
            for each in list_workflows(tx, before=window.before, limit=window.one_more)
        ]
    return window.cut(found)


@operation(
    "workflow keep",
    "POST /workflows",
    tool=McpTool("save_workflow", "Save a workflow", destructive=True, repeatable=True),
    status=201,
    location="/workflows/{it.name}",
)
def save(call: Call, spec: Spec, name: SaveName = None) -> WorkflowAnswer:
    """Keep a workflow, in the place of an earlier one of its name. Every problem with it is named."""
    from ratchet.workflows.saved import require_spec

    return keep(call, require_spec(spec), origin=call.actor, name=name)


def keep(call: Call, spec: WorkflowSpec, *, origin: str, name: str | None = None) -> WorkflowAnswer:
    """`save`, of a workflow that was read already; `origin` says where it came from."""
    from ratchet.workflows.saved import keep_workflow

    with call.write() as tx:
        return WorkflowAnswer.of(keep_workflow(tx, spec, origin=origin, name=name))


@operation(
    "workflow check",
    "POST /workflows/validate",
    tool=McpTool("check_workflow", "Check a workflow", is_resource=False),
    changes_nothing=True,
)
def check(call: Call, spec: Spec) -> CheckedAnswer:
    """Say everything for which a run would refuse a workflow, tools that do not exist included.

    Nothing is saved or run.
    """
    from ratchet.workflows.saved import check_runnable

    problems = check_runnable(call.runtime, spec)
    return CheckedAnswer(not problems, problems)


@operation(
    "workflow complete",
    "POST /workflows/fill",
    tool=McpTool("fill_workflow", "Have the tools of a workflow written", outside=True, queues=True),
    status=202,
    location="/workflows/runs/{it.run_id}",
)
def fill(call: Call, spec: Spec, engine: Engine = None, model: Model = None) -> WorkflowRunAnswer:
    """Have the tools written that the steps of a workflow ask for with `generate_tool`, and save it with them.

    A worker does it. 424 when the engine that writes cannot work now.
    """
    from ratchet.engines.preflight import check_for_worker
    from ratchet.workflows.overseer import start_fill
    from ratchet.workflows.preflight import check_overseer
    from ratchet.workflows.saved import require_spec

    found = require_spec(spec)
    asked: dict[str, Any] = {"reuse": False, "engine": engine, "model": model}
    check_for_worker(call.runtime, partial(check_overseer, call.runtime, found.workflow_id, **asked))
    run_id = start_fill(
        call.runtime, found, engine=engine, model=model, actor=call.actor, request_id=call.request_id
    )
    return WorkflowRunAnswer.at(call, run_id)


@operation(
    "workflow request",
    "POST /workflows/plan",
    tool=McpTool("plan_workflow", "Plan a workflow", outside=True, queues=True),
    status=202,
    location="/workflows/runs/{it.run_id}",
)
def plan(
    call: Call,
    sentence: Annotated[str, Param("what it should do", shortest=1, longest=LONGEST_SENTENCE)],
    name: Annotated[str | None, line_of("the name to save it under; one of its own if not given")] = None,
    engine: Engine = None,
    model: Model = None,
    reuse: Annotated[bool, Param("take a remembered plan if there is one for this")] = True,
    keep_tools: Annotated[bool, Param("put tools that are written for it among all others")] = False,
    simulated: Simulated = False,
) -> WorkflowRunAnswer:
    """Have an overseer plan a workflow from a sentence; the result of the run names what was saved.

    A worker does it. 424 when the engine that plans cannot work now, and no plan for this is remembered.
    """
    from ratchet.engines.preflight import check_for_worker
    from ratchet.workflows.overseer import start_plan
    from ratchet.workflows.overseer.request import checked_sentence
    from ratchet.workflows.preflight import check_overseer

    sentence = checked_sentence(sentence)
    chosen: dict[str, Any] = {"reuse": reuse, "engine": engine, "model": model}
    check_for_worker(call.runtime, partial(check_overseer, call.runtime, sentence, **chosen))
    run_id = start_plan(
        call.runtime,
        sentence,
        name=name,
        keep_tools=keep_tools,
        simulated=simulated,
        **chosen,
        actor=call.actor,
        request_id=call.request_id,
    )
    return WorkflowRunAnswer.at(call, run_id)


@operation("workflow all-runs", "GET /workflows/runs")
def all_runs(call: Call, window: Window) -> Listing[WorkflowRunAnswer]:
    """List everything that was run or planned, newest first."""
    with call.read() as tx:
        found = runs_of(tx, before=window.before, limit=window.one_more)
    return window.cut(found, number="run_id")


@operation(
    "workflow outcome",
    "GET /workflows/runs/{run_id}",
    tool=McpTool("get_workflow_run", "Show a run of a workflow"),
)
def outcome(call: Call, run_id: WorkflowRunNumber) -> OutcomeAnswer:
    """Show what a run has come to, or its progress: outputs, and status, error and metrics of each step.

    `/events/stream?run_id=` reports it as it happens.
    """
    from ratchet.workflows.runs import report_run

    with call.read() as tx:
        run = get_run(tx, run_id)
        if run.kind != RUN_KIND:
            raise NotFound("run of a workflow", run_id)
        if _action(run) != "run":
            return OutcomeAnswer.of(run, result=run.result)
        report = report_run(tx, call.ledger.artifacts, run_id)
    steps = {name: WorkflowStepAnswer(**each) for name, each in report.pop("steps").items()}
    return OutcomeAnswer.of(run, **report, steps=steps)


@operation(
    "workflow show",
    "GET /workflows/{name}",
    tool=McpTool("get_workflow", "Show a workflow"),
    columns={
        "workflow": "name",
        "version": "version",
        "description": lambda found: found.description or None,
        "steps": lambda found: " → ".join(", ".join(turn) for turn in found.waves),
        "from": "origin",
        "saved": "created_at",
    },
)
def show(call: Call, name: WorkflowName) -> WholeWorkflowAnswer:
    """Show a saved workflow: its spec with inputs and steps, and its last runs."""
    # Loaded here: a list needs no specs.
    from ratchet.flowkit.graph import waves
    from ratchet.flowkit.reader import read_spec

    with call.read() as tx:
        found = get_workflow(tx, name)
        last = runs_of(tx, name, limit=_LAST_RUNS)
    return WholeWorkflowAnswer.of(found, spec=found.spec, waves=waves(read_spec(found.spec)), runs=last)


@operation(
    "workflow delete",
    "DELETE /workflows/{name}",
    tool=McpTool("delete_workflow", "Delete a workflow", destructive=True),
    examples=["ratchet workflow delete report", "ratchet workflow delete report --yes"],
    asks="Delete {it[name]}?",
    done="{it.workflow} is deleted",
    status=204,
)
def delete(call: Call, name: WorkflowName) -> DeletedWorkflow:
    """Delete a saved workflow; what it has run stays.

    What is remembered of it is deleted as well, so that no later request leads to it.
    """
    from ratchet.workflows.memory import delete_workflow

    forgotten = delete_workflow(call.runtime, name, actor=call.actor, request_id=call.request_id)
    return DeletedWorkflow(name, forgotten)


@operation("workflow waves", "GET /workflows/{name}/waves", enveloped=False)
def waves(call: Call, name: WorkflowName) -> Listing[list[str]]:
    """List the steps that could run at once, in turns."""
    from ratchet.flowkit.graph import waves as waves_of
    from ratchet.flowkit.reader import read_spec

    with call.read() as tx:
        return Listing(waves_of(read_spec(get_workflow(tx, name).spec)))


@operation(
    "workflow runs",
    "GET /workflows/{name}/runs",
    tool=McpTool("list_workflow_runs", "List the runs of a workflow"),
)
def runs(call: Call, window: Window, name: WorkflowName) -> Listing[WorkflowRunAnswer]:
    """List the runs of one workflow, newest first."""
    with call.read() as tx:
        get_workflow(tx, name)
        found = runs_of(tx, name, before=window.before, limit=window.one_more)
    return window.cut(found, number="run_id")


@operation(
    "workflow run",
    "POST /workflows/{name}/runs",
    tool=McpTool("run_workflow", "Run a workflow", destructive=True, outside=True, queues=True),
    status=202,
    location="/workflows/runs/{it.run_id}",
)
def start(
    call: Call,
    name: WorkflowName,
    inputs: Annotated[dict[str, Any] | None, Param("what it is given, by name")] = None,
    cached: Annotated[bool, Param("use the results of steps that are known already")] = True,
    spread: Annotated[
        bool | None, Param("offer steps to other workers; as the settings say, if null")
    ] = None,
    background: Annotated[bool, Param("give way to whatever else there is to do")] = False,
    priority: Annotated[int | None, Param("0 is done first, 9 last", least=0, most=9)] = None,
    simulated: Simulated = False,
) -> WorkflowRunAnswer:
    """Start a run of a saved workflow; a worker does it. Every input and tool that is wrong or missing is named.

    424 when a model that its steps ask cannot be asked now. The run's outcome has what it comes to.
    """
    from ratchet.engines.preflight import check_for_worker
    from ratchet.workflows.preflight import check_workflow
    from ratchet.workflows.runs import prepare, start_workflow
    from ratchet.workflows.saved import load_saved

    prepared = prepare(
        call.runtime, load_saved(call.runtime, name), inputs or {}, cached=cached, spread=spread
    )
    check_for_worker(call.runtime, partial(check_workflow, call.runtime, prepared))
    with call.write() as tx:
        run_id = start_workflow(
            tx, call.runtime, prepared, simulated=simulated, priority=priority, background=background
        )
    return WorkflowRunAnswer.at(call, run_id)


@operation(
    "workflow profile",
    "GET /workflows/{name}/profile",
    tool=McpTool("get_workflow_profile", "Show where a workflow spends"),
)
def profile(
    call: Call,
    name: WorkflowName,
    last: Annotated[int, Param("so many of its runs", least=1, most=100)] = 20,
) -> WorkflowProfile:
    """Show where the time and the money of its last runs went, and what to improve first."""
    from ratchet.workflows.profile import profile_workflow

    with call.read() as tx:
        return profile_workflow(tx, name, last)


@operation(
    "workflow improve",
    "POST /workflows/{name}/evolve",
    tool=McpTool("evolve_workflow", "Improve a workflow", outside=True, queues=True),
    status=202,
    location="/workflows/runs/{it.run_id}",
)
def evolve(
    call: Call,
    name: WorkflowName,
    engine: Engine = None,
    model: Model = None,
    why: Why = None,
    simulated: Simulated = False,
) -> WorkflowRunAnswer:
    """Have the tool of a workflow rewritten that is worth it most; it is replaced only by what proves better.

    409 when none can be, 424 when its engine cannot work now.
    """
    from ratchet.workflows.evolution.requests import choose_of_workflow

    chosen = choose_of_workflow(call.runtime, name)
    why = why or chosen.why
    return start_evolution(
        call, chosen.tool, chosen.folder, engine=engine, model=model, why=why, simulated=simulated
    )


def start_evolution(
    call: Call,
    tool_id: str,
    folder: str,
    *,
    engine: str | None,
    model: str | None,
    why: str | None,
    simulated: bool,
) -> WorkflowRunAnswer:
    """Have a tool rewritten, once its engine was looked at."""
    from ratchet.engines.preflight import check_for_worker
    from ratchet.workflows.evolution.requests import evolve_tool
    from ratchet.workflows.preflight import check_evolution

    check = partial(check_evolution, call.runtime, tool_id, folder=folder, engine=engine, model=model)
    check_for_worker(call.runtime, check)
    run_id = evolve_tool(
        call.runtime,
        tool_id,
        folder=folder,
        engine=engine,
        model=model,
        why=why,
        simulated=simulated,
        actor=call.actor,
        request_id=call.request_id,
    )
    return WorkflowRunAnswer.at(call, run_id)


def runs_of(
    tx: Transaction, name: str | None = None, *, before: int | None = None, limit: int = 50
) -> list[WorkflowRunAnswer]:
    """The runs of one workflow or of all, newest first."""
    found = list_runs(tx, kind=RUN_KIND, name=name, before=before, limit=limit)
    return [WorkflowRunAnswer.of(run) for run in found]


OPERATIONS = (
    saved,
    save,
    check,
    fill,
    plan,
    all_runs,
    outcome,
    show,
    delete,
    waves,
    runs,
    start,
    profile,
    evolve,
)
