"""The operations on research runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, Any

from ratchet.kernel import Direction, Misuse, NotFound
from ratchet.ledger import Run
from ratchet.ledger.research import find_research, get_standing
from ratchet.ledger.runs import get_run, list_runs
from ratchet.ledger.trial_pages import latest_trials, trial_origins
from ratchet.ledger.trials import get_trial
from ratchet.operations import Listing, McpTool, Param, Window, line_of, operation
from ratchet.research import views
from ratchet.research.sessions.inputs import trial_number
from ratchet.research.tasks.catalog import TaskAnswer, installed_tasks
from ratchet.research.views._knowledge import KnowledgeAnswer, LessonAnswer, TreeAnswer
from ratchet.research.views._status import Comparison, StandingAnswer
from ratchet.research.views.specialists import CalibrationAnswer, CostAnswer, YieldAnswer
from ratchet.research.views.trials import LeaderAnswer, NearMissAnswer, TrialAnswer, Verified, WholeTrial
from ratchet.runtime.call import Call
from ratchet.runtime.operations.runs import StatusFilter

# What every engine and JSON can tell apart.
LARGEST_SEED = 2**53 - 1
POLICIES = ("confident", "strict")
_MOST = 1_000_000

# Simulated trials of one comparison, over all arms and seeds: some minutes.
_MOST_SIMULATED = 200_000
# Runs that one comparison may begin.
_MOST_RUNS = 1_000

Certificate = Annotated[
    str | dict[str, Any],
    Param(
        "A file with a certificate or a trial, or RUN/TRIAL, such as 3/075.",
        metavar="CERT",
        outside="The certificate, the trial with it, or RUN/TRIAL, such as 3/075; never a path.",
        argument=True,
        read="ratchet.research.verification:typed_certificate",
    ),
]
RunName = Annotated[str, Param("The number or the name of a run; of several the newest.", metavar="RUN")]
ShownRun = Annotated[
    str, Param("Its number, or its name: the newest run of that name.", metavar="RUN", longest=200)
]
TrialName = Annotated[str, Param("Its number, such as 075.", metavar="TRIAL")]
SpecialistFilter = Annotated[str | None, Param("Only of this specialist.", longest=200)]
Limit = Annotated[int, Param("how many at most")]


@operation(
    "research list",
    "GET /research",
    tool=McpTool("list_research", "List research runs"),
    examples=["ratchet research list", "ratchet research list -n 5 --json"],
    see=["research status"],
    columns={
        "run": "id",
        "name": "name",
        "status": "status",
        "created": "created_at",
        "took": ("created_at", "ended_at"),
        "reason": "reason",
    },
    empty="No research yet. `ratchet research run circle_packing --engine search --trials 200` makes some.",
)
def list_(call: Call, window: Window, status: StatusFilter = None) -> Listing[Run]:
    """List research runs, newest first."""
    with call.read() as tx:
        found = list_runs(tx, kind="research", status=status, before=window.before, limit=window.one_more)
    return window.cut(found)


@operation(
    "research start",
    "POST /research",
    tool=McpTool("start_research", "Start research", outside=True, queues=True),
    status=201,
    location="/research/{it.id}",
)
def start(
    call: Call,
    task: Annotated[
        str,
        line_of(
            "the name of an installed task, or NAME:VARIANT, such as circle_packing; never a path",
            "TASK",
            argument=True,
        ),
    ],
    variant: Annotated[
        str | None, line_of("A variant of the task; the task itself if not given.", "VARIANT")
    ] = None,
    name: Annotated[
        str | None, line_of("What to call the run; the task's name if not given.", "NAME")
    ] = None,
    engine: Annotated[
        str | None,
        line_of("Who proposes, for every specialist; the task's own if not given.", "ENGINE", engine=True),
    ] = None,
    model: Annotated[
        str | None,
        line_of(
            "The model, for every specialist, or several, A,B: each specialist then takes part with each.",
            "MODEL",
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        line_of(
            "From where each session begins: adaptive (if not given: the best, and elsewhere on a plateau), greedy, "
            "islands, clade, pareto, best_of_n, sequential, or an installed one.",
            "STRATEGY",
        ),
    ] = None,
    specialists: Annotated[list[str], Param("only these of the task", longest=100)] = [],  # noqa: B006  never changed
    keep_policy: Annotated[str | None, line_of(" or ".join(POLICIES))] = None,
    lineage: Annotated[bool, Param("whether specialists are shown earlier trials")] = True,
    parallel: Annotated[
        int | None,
        Param("Sessions at once; as many as there are slots if not given.", "N", least=1, most=1000),
    ] = None,
    seed: Annotated[int, Param("Where a search begins.", "N", least=0, most=LARGEST_SEED)] = 0,
    trials: Annotated[int | None, Param("Stop after so many trials.", "N", least=1, most=_MOST)] = None,
    hours: Annotated[
        float | None, Param("Stop after so many hours of work.", "HOURS", above=0, most=_MOST)
    ] = None,
    hours_without_keep: Annotated[
        float | None, Param("Stop when nothing was kept for so long.", "HOURS", above=0, most=_MOST)
    ] = None,
    tokens: Annotated[
        int | None, Param("Stop when so many tokens are used.", "N", least=1, most=10**15)
    ] = None,
    cost_usd: Annotated[
        float | None, Param("Stop when so much money is spent.", "USD", above=0, most=10**9)
    ] = None,
    baseline_score: Annotated[float | None, Param("taken instead of measuring the recipe as it is")] = None,
    simulated: Annotated[bool, Param("Allow recorded sessions; the run is marked as a simulation.")] = False,
) -> Run:
    """Improve the recipe of an installed task under measurement, until one of the stops is reached.

    What is left out is what the task says. Something must stop the run: here, or in the task. 404 when no such task is
    installed, 422 for what can never work, 424 when an engine of it cannot work now. Only installed tasks can be named.
    A path would let anyone who holds the token have any directory of the server read, and the code in it run; tasks in
    folders are for the command line.
    """
    from ratchet.engines.preflight import check_for_worker
    from ratchet.research.start import ResearchRequest, check_research, start_research
    from ratchet.research.tasks import find_installed

    wanted = ResearchRequest(
        task=task,
        variant=variant,
        name=name,
        engine=engine,
        model=model,
        strategy=strategy,
        specialists=tuple(specialists),
        keep_policy=keep_policy,
        lineage=lineage,
        parallel=parallel,
        seed=seed,
        trials=trials,
        hours=hours,
        hours_without_keep=hours_without_keep,
        tokens=tokens,
        cost_usd=cost_usd,
        baseline_score=baseline_score,
        simulated=simulated,
    )
    check_for_worker(call.runtime, partial(check_research, call.runtime, wanted, find=find_installed))
    run_id = start_research(
        call.runtime, wanted, actor=call.actor, request_id=call.request_id, find=find_installed
    )
    with call.read() as tx:
        return get_run(tx, run_id)


@operation(
    "research tasks", "GET /research/tasks", tool=McpTool("list_research_tasks", "List research tasks")
)
def tasks(_call: Call) -> Listing[TaskAnswer]:
    """The installed research tasks by name, all at once, each with its score and its specialists."""
    return Listing(installed_tasks())


@operation("research status", "GET /research/{run}", tool=McpTool("get_research", "Show a research run"))
def status(call: Call, run: ShownRun) -> StandingAnswer:
    """The progress of a research run: baseline, best, trials by how they ended, what is in flight, cost."""
    with call.read() as tx:
        return views.read_status(tx, find_research(tx, run)).answer()


@operation("research trials", "GET /research/{run}/trials", tool=McpTool("list_trials", "List trials"))
def trials(
    call: Call, window: Window, run: ShownRun, specialist: SpecialistFilter = None
) -> Listing[TrialAnswer]:
    """The trials of a research run, the last one first: hypothesis, score, and why each was kept or not.

    Those in flight and the baseline are among them. `before` takes a trial's number.
    """
    with call.read() as tx:
        found = latest_trials(
            tx, find_research(tx, run), specialist=specialist, before=window.before, limit=window.one_more
        )
    page = window.cut(found, number="number")
    return Listing(list(map(TrialAnswer.of, page.items)), page.next)


@operation("research trial", "GET /research/{run}/trials/{exp}", tool=McpTool("get_trial", "Show a trial"))
def trial(call: Call, run: ShownRun, exp: TrialName) -> WholeTrial:
    """One trial with its measurements and, if it was kept, its certificate, which is checked again."""
    with call.read() as tx:
        found = get_trial(tx, find_research(tx, run), trial_number(exp))
    return views.whole(found, views.evidence_of(call.ledger, found))


@operation(
    "research leaderboard",
    "GET /research/{run}/leaderboard",
    tool=McpTool("get_leaderboard", "Show the leaderboard"),
    enveloped=False,
)
def leaderboard(call: Call, run: ShownRun, limit: Limit = 20) -> Listing[LeaderAnswer]:
    """Show what was kept, the best first."""
    with call.read() as tx:
        return Listing(views.leaderboard_of(tx, find_research(tx, run), limit=limit).answer())


@operation(
    "research tree", "GET /research/{run}/tree", tool=McpTool("get_lineage", "Show the lineage of a trial")
)
def tree(
    call: Call,
    run: ShownRun,
    trial: Annotated[
        str | None,
        Param(
            "Its number, such as 075; the best one if not given.", metavar="TRIAL", longest=200, argument=True
        ),
    ] = None,
) -> TreeAnswer:
    """The trials that a trial came from and its newest children; of the best, if none is named."""
    number = None if trial is None else trial_number(trial)
    with call.read() as tx:
        return views.tree(tx, find_research(tx, run), number).answer()


@operation(
    "research knowledge",
    "GET /research/{run}/knowledge",
    tool=McpTool("get_knowledge", "Show what research has learned"),
)
def knowledge(call: Call, run: ShownRun) -> KnowledgeAnswer:
    """Show the lineage of the best, what happened last, and lessons."""
    with call.read() as tx:
        return views.knowledge(tx, find_research(tx, run)).answer()


@operation("research activity", "GET /research/{run}/activity", enveloped=False)
def activity(
    call: Call, run: ShownRun, specialist: SpecialistFilter = None, limit: Limit = 30
) -> Listing[TrialAnswer]:
    """Show the last trials.

    What could not be measured is left out.
    """
    with call.read() as tx:
        found = views.recent_activity(tx, find_research(tx, run), specialist=specialist, limit=limit)
    return Listing(found.answer())


@operation(
    "research misses",
    "GET /research/{run}/misses",
    tool=McpTool("list_near_misses", "List near misses"),
    enveloped=False,
)
def misses(call: Call, run: ShownRun, limit: Limit = 10) -> Listing[NearMissAnswer]:
    """Show what was nearly kept, and why it was not."""
    with call.read() as tx:
        return Listing(views.near_misses(tx, find_research(tx, run), limit=limit).answer())


@operation("research yield", "GET /research/{run}/yield", enveloped=False)
def yields(call: Call, run: ShownRun) -> Listing[YieldAnswer]:
    """Show what each specialist has brought.

    What it has cost is shown as well.
    """
    with call.read() as tx:
        return Listing(views.yields(tx, find_research(tx, run)).answer())


@operation(
    "research cost",
    "GET /research/{run}/cost",
    tool=McpTool("get_research_cost", "Show what research has cost"),
)
def cost(call: Call, run: ShownRun) -> CostAnswer:
    """Show what a run has cost.

    Tokens, money and time: in all, for each trial and keep, and by specialist.
    """
    with call.read() as tx:
        return views.cost(tx, find_research(tx, run)).answer()


@operation("research lessons", "GET /research/{run}/lessons", enveloped=False)
def lessons(call: Call, run: ShownRun, limit: Limit = 30) -> Listing[LessonAnswer]:
    """Show what specialists have learned.

    The newest come first.
    """
    with call.read() as tx:
        return Listing(views.insights(tx, find_research(tx, run), limit=limit).answer())


@operation("research calibration", "GET /research/{run}/calibration")
def calibration(call: Call, run: ShownRun) -> CalibrationAnswer:
    """What specialists expected of their last trials, and the results."""
    with call.read() as tx:
        return views.calibration(tx, find_research(tx, run)).answer()


@operation(
    "research pause",
    "POST /research/{run}/pause",
    tool=McpTool("pause_research", "Pause research", repeatable=True),
    examples=["ratchet research pause 3"],
    see=["research resume", "research stop"],
    done="Run {it.id} is paused",
)
def pause(call: Call, run: RunName) -> Run:
    """Pause a research run; trials in flight are measured again when it is resumed.

    Its worker is asked to stop. Pausing it again changes nothing.
    """
    from ratchet.runtime import pause_run

    with call.write() as tx:
        run_id = find_research(tx, run)
        pause_run(tx, call.runtime, run_id)
        return get_run(tx, run_id)


@operation(
    "research resume",
    "POST /research/{run}/resume",
    tool=McpTool("resume_research", "Resume research", outside=True, queues=True),
    done="Run {it.id} is resumed",
)
def resume(call: Call, run: RunName) -> Run:
    """Resume a paused or blocked research run. What was measured is not measured again.

    The engines are looked at first; if one cannot work now, the run stays as it is.
    """
    from ratchet.engines.preflight import check_for_worker
    from ratchet.research.start import check_resumed

    with call.read() as tx:
        run_id = find_research(tx, run)
    check_for_worker(call.runtime, partial(check_resumed, call.runtime, run_id))
    return begin_again(call, run_id)


def begin_again(call: Call, run_id: int) -> Run:
    """`resume`, where the engines were looked at."""
    from ratchet.runtime import resume_run

    with call.write() as tx:
        resume_run(tx, call.runtime, run_id)
        return get_run(tx, run_id)


@operation(
    "research stop",
    "POST /research/{run}/stop",
    tool=McpTool("stop_research", "Stop research", destructive=True, repeatable=True),
    examples=["ratchet research stop 3", "ratchet research stop tides"],
    see=["research pause", "research report"],
    done="Run {it.id} has ended",
)
def stop(call: Call, run: RunName) -> Run:
    """End a research run for good; what was kept stays.

    It cannot be resumed. Its trials, its best recipe and its report can still be looked at. Stopping it again changes
    nothing.
    """
    from ratchet.runtime import cancel_run

    with call.write() as tx:
        run_id = find_research(tx, run)
        cancel_run(tx, call.runtime, run_id, reason="stopped on request")
        return get_run(tx, run_id)


@operation(
    "research verify",
    "POST /research/verify",
    tool=McpTool("verify_certificate", "Verify a certificate"),
    changes_nothing=True,
    succeeded=lambda it: it.holds,
)
def verify(call: Call, certificate: Certificate) -> Verified:
    """Check the certificate of a kept trial: its decision, its signature, its row in the ledger.

    The decision is made again from the measurements in it, the signature must be that of this home's key, and commit,
    evaluator and environment those of the trial's row. `problems` has everything that speaks against it.
    """
    from ratchet.research.verification import find_certificate, verify_certificate

    return verify_certificate(call.ledger, call.home, find_certificate(call.ledger, certificate))


@operation(
    "research remeasure",
    "POST /research/remeasure",
    tool=McpTool("remeasure_certificate", "Measure a certificate again", outside=True, queues=True),
    status=201,
    location="/runs/{it.id}",
    done="Run {it.id} waits for a worker",
)
def remeasure(call: Call, certificate: Certificate) -> Run:
    """Check a certificate, and measure both commits of it again with fresh seeds.

    That takes as long as the decision took, so it is a run of its own: it may be paused and cancelled, survives its
    worker, and its result is what `verify` answers, with `again`. A certificate of no trial of this home cannot be
    measured.
    """
    from ratchet.research.jobs import VERIFY
    from ratchet.research.verification import find_certificate, verify_certificate
    from ratchet.runtime import start_run

    content = find_certificate(call.ledger, certificate)
    found = verify_certificate(call.ledger, call.home, content)
    if found.run is None:
        raise NotFound("trial of the certificate", str(content.get("commit"))[:40])
    name = f"trial {found.exp_id} of run {found.run}"
    with call.write() as tx:
        # By its content: what is begun may not depend on a file that changes.
        run_id = start_run(
            tx,
            call.runtime,
            VERIFY,
            kind="verification",
            name=name,
            spec={"certificate": dict(content)},
        )
        return get_run(tx, run_id)


@operation(
    "research compare",
    "POST /research/compare",
    tool=McpTool("compare_strategies", "Compare strategies", outside=True, queues=True),
)
def compare(
    call: Call,
    task: Annotated[
        str | None,
        line_of(
            "A task to hold real runs on.", "TASK", argument=True, outside="The name of an installed task."
        ),
    ] = None,
    landscape: Annotated[
        str | None, line_of("Simulate on hill, rugged, deceptive, steps or flat.", "NAME")
    ] = None,
    recorded: Annotated[
        str | None, line_of("Simulate with what the model of this run made of its programs.", "RUN")
    ] = None,
    strategies: Annotated[
        list[str], Param("The arms; best_of_n and sequential are always among them.", longest=100)
    ] = ["greedy", "islands", "clade", "adaptive"],  # noqa: B006  never changed
    trials: Annotated[int, Param("The budget of a run.", least=1, most=10_000)] = 200,
    seeds: Annotated[int, Param("Runs of each arm.", least=1, most=1_000)] = 10,
    noise: Annotated[float, Param("The spread of simulated scores.", least=0, most=10**9)] = 0.0,
    engine: Annotated[
        str | None,
        line_of("Who proposes in real runs; the task's own if not given.", "ENGINE", engine=True),
    ] = None,
    model: Annotated[
        str | None, line_of("The model in real runs; the task's own if not given.", "MODEL")
    ] = None,
    parallel: Annotated[int | None, Param("Sessions at once in real runs.", "N", least=1, most=1000)] = None,
) -> Comparison:
    """Compare strategies at equal budgets, and with the plain baselines.

    On a landscape, or with a recorded run, the model is made up: strategies are compared for nothing. On a task real
    runs are held, one of each arm after the other: this begins those that are missing, and compares by the seeds of
    which all arms have ended; asked again, it continues, and `left` says how many runs have not ended. Bands and no
    lines: the middle of an arm's runs, and where eight of ten are.
    """
    from ratchet.engines.preflight import check_for_worker
    from ratchet.research.start import arms_of, begin_arm, check_research, compare_runs
    from ratchet.research.tasks import find_installed

    arms = compared_arms(task, landscape, recorded, strategies, real=(engine, model, parallel), noise=noise)
    if task is None:
        return simulated(call.read, arms, landscape, recorded, trials=trials, seeds=seeds, noise=noise)
    check_size(len(arms) * seeds, _MOST_RUNS, "runs")
    wanted = arms_of(task, arms, seeds, engine=engine, model=model, parallel=parallel, trials=trials)
    check_for_worker(call.runtime, partial(check_research, call.runtime, wanted[0], find=find_installed))
    runs = [
        begin_arm(call.runtime, each, actor=call.actor, request_id=call.request_id, find=find_installed)
        for each in wanted
    ]
    with call.read() as tx:
        return compare_runs(tx, wanted, runs)


def simulated(
    read: Callable[[], AbstractContextManager[Any]],
    arms: list[str],
    landscape: str | None,
    recorded: str | None,
    *,
    trials: int,
    seeds: int,
    noise: float,
) -> Comparison:
    """The arms on a landscape, or with what a recorded run has in the ledger, which is read for nothing else."""
    from ratchet.research import simulation

    check_size(len(arms) * trials * seeds, _MOST_SIMULATED, "simulated trials")
    if landscape is not None:
        on, where, direction = landscape, simulation.find_landscape(landscape), Direction.MAX
    else:
        with read() as tx:
            run_id = find_research(tx, recorded or "")
            direction, rows = get_standing(tx, run_id).direction, trial_origins(tx, run_id)
        on, where = f"what the model of run {run_id} does", simulation.RecordedLandscape(rows, direction)
    return simulation.compare_simulated(
        on, where, arms, trials=trials, seeds=seeds, noise=noise, direction=direction
    )


def compared_arms(
    task: str | None,
    landscape: str | None,
    recorded: str | None,
    strategies: list[str],
    *,
    real: tuple[object, ...],
    noise: float,
) -> list[str]:
    """The arms of a comparison, with the baselines. Raises `Misuse` for what does not go together."""
    from ratchet.research.simulation import LANDSCAPES, with_baselines

    if sum(each is not None for each in (task, landscape, recorded)) != 1:
        raise Misuse(
            "there are three ways to compare strategies",
            hint=f"name one TASK, or --landscape {'|'.join(LANDSCAPES)}, or --recorded RUN",
        )
    if (task is None and any(each is not None for each in real)) or (task is not None and noise):
        raise Misuse(
            "engine, model and parallel are for real runs on a task, and noise is for simulated ones",
            hint="leave out what is for the other way",
        )
    return with_baselines(strategies)


def check_size(wanted: int, most: int, what: str) -> None:
    """Raises `Misuse` for a comparison that would not end."""
    if wanted > most:
        raise Misuse(
            f"this comparison would need {wanted:,} {what}, and may have {most:,}",
            hint="name fewer strategies, seeds or trials",
        )


OPERATIONS = (
    list_, start, tasks, status, trials, trial, leaderboard, tree, knowledge, activity, misses, yields, cost, lessons,
    calibration, pause, resume, stop, verify, remeasure, compare,
)  # fmt: skip
