"""Whether a task keeps the contract: description, prompts, tools, baseline. And all checks by a task's name."""

from __future__ import annotations

import asyncio
import platform
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from ratchet.engines.search.program import SearchProgram
from ratchet.engines.tool_server import Way
from ratchet.judges.comparison import spread
from ratchet.kernel import Missing, Misuse, RatchetError, TrialStatus
from ratchet.ledger.trials import Trial
from ratchet.research.adapter import Program, TaskAdapter
from ratchet.research.checker.attacks import check_attacks
from ratchet.research.checker.bench import (
    Bench,
    CheckPart,
    Grade,
    Look,
    Observation,
    OnCheck,
    Stopwatch,
    TaskCase,
    TaskCheck,
    failed,
    file_hashes,
    new_place,
    open_bench,
    warned,
)
from ratchet.research.checker.faults import check_harness
from ratchet.research.measurement import SlotPool, TaskMeter
from ratchet.research.measurement.checkout import recipe_patterns
from ratchet.research.measurement.machine import Machine, look_inside
from ratchet.research.measurement.result import Unmeasured
from ratchet.research.sessions import Idea, SessionContext, system_prompt, user_prompt
from ratchet.research.sessions.tools import task_tools
from ratchet.research.tasks import check_task, find_task, initial_files, task_hash, task_names
from ratchet.workspaces import Workspace


def sample(schema: Mapping[str, Any]) -> Any:
    """The first allowed value of each required member. Schemas of tools are plain; what is more is not understood."""
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    for listed in ("enum", "examples"):
        if schema.get(listed):
            return schema[listed][0]
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            members = schema.get("properties", {})
            return {name: sample(members.get(name, {})) for name in schema.get("required", ())}
        case "array":
            return [sample(schema.get("items", {}))] * schema.get("minItems", 0)
        case "string":
            return "x" * schema.get("minLength", 1)
        case "integer" | "number":
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        case "boolean":
            return True
    return None


_LONG_PROMPT = 200_000


async def reads(case: TaskCase) -> Observation:
    task = case.bench.task
    files = initial_files(task)
    if task_hash(task) != task.sha256:
        return failed(
            "the pinned copy is not what was copied", "start again when the task's folder is not being edited"
        )
    how = "is a command" if task.trial and not task.trial.is_node else "runs as a function"
    how = how if task.trial else "is only read"
    names = ", ".join(each.name for each in task.roster)
    return Observation(
        f"the recipe {how}; {len(files)} files, {sum(map(len, files.values()))} bytes; for {names}"
    )


async def out_of_reach(case: TaskCase) -> Observation:
    """No file of the evaluator, and none of the held-out split alone, may lie where the recipe can read it."""
    secret, open_to_all = await asyncio.to_thread(file_hashes, case.bench.task)
    shared = [f"{place} is {secret[digest]}" for place, digest in open_to_all.items() if digest in secret]
    if shared:
        return failed(
            f"the recipe can read what it must not know: {', '.join(shared[:5])}",
            "remove the copy from inputs, recipe and stage files",
        )
    return Observation(
        f"none of {len(secret)} files of the evaluator and the held-out split is shown to the recipe"
    )


async def size(case: TaskCase) -> Observation:
    task = case.bench.task
    with await asyncio.to_thread(case.bench.repository.workspace, case.bench.base) as workspace:
        found = await asyncio.to_thread(task.size_check, workspace.path)
    if found.limit_bytes is None:
        return Observation(f"{found.total_bytes:,} bytes; there is no limit")
    detail = f"{found.total_bytes:,} of {found.limit_bytes:,} bytes"
    if found.verdict == "block":
        return failed(f"{detail}: the baseline is too large", "raise size.limit_bytes")
    if 10 * found.total_bytes > 9 * found.limit_bytes:
        return warned(f"{detail}: there is little room for changes", "raise size.limit_bytes")
    return Observation(detail)


async def search(case: TaskCase) -> Observation:
    """What the search engine could change."""
    with await asyncio.to_thread(case.bench.repository.workspace, case.bench.base) as workspace:
        files = recipe_patterns(case.bench.task, workspace.path)
        try:
            found = await asyncio.to_thread(
                SearchProgram.read, workspace.path, files, undeclared=False, go_on=lambda: None
            )
        except Misuse as error:
            if "nothing to search" not in str(error):
                raise
            return warned("no constant is declared, so the search engine has nothing to do", error.hint or "")
    names = ", ".join(each.name for each in found.constants[:5])
    more = f" and {len(found.constants) - 5} more" if len(found.constants) > 5 else ""
    return Observation(f"{len(found.constants)} constants: {names}{more}")


async def prompts(case: TaskCase) -> Observation:
    """What each specialist would be detail, for every way of giving it tools, with and without a lineage."""
    task, longest = case.bench.task, 0
    with await asyncio.to_thread(case.bench.repository.workspace, case.bench.base) as workspace:
        for specialist in task.roster:
            for way in Way:
                detail = user_prompt(
                    task, specialist, directory=workspace.path, parent=0, lineage="", way=way
                )
                for lineage in (True, False):
                    system = system_prompt(task, specialist, lineage=lineage, way=way)
                    longest = max(longest, len(system) + len(detail))
    detail = f"{longest:,} characters is the longest of {2 * len(Way) * len(task.roster)}"
    if longest > _LONG_PROMPT:
        return warned(detail, "shorten the knowledge: every session pays for it")
    return Observation(detail)


async def tools(case: TaskCase) -> Observation:
    """Every tool of the task, asked once with values that its schema allows."""
    with await asyncio.to_thread(case.bench.repository.workspace, case.bench.base) as workspace:
        own = task_tools(_sitting(case.bench, workspace))
        for tool in own:
            try:
                await tool.run(sample(tool.input_schema))
            except Misuse as error:
                return failed(
                    f"{tool.name} does not answer: {str(error)[:300]}",
                    "let it answer every input that its schema allows",
                )
    return Observation(
        f"{', '.join(tool.name for tool in own)} answered" if own else "it has none of its own"
    )


def _sitting(bench: Bench, workspace: Workspace) -> SessionContext:
    return SessionContext(
        run_id=0,
        task=bench.task,
        specialist=bench.task.doers[0],
        repository=bench.repository,
        workspace=workspace,
        parent=0,
        submit=_refuse_submission,
        read=_no_ledger,
        write=_no_ledger,
    )


async def _refuse_submission(_idea: Idea) -> Trial:
    raise Misuse("a check submits nothing")


def _no_ledger() -> NoReturn:
    raise Misuse("a check has no ledger")


_MOST_REPEATS = 5
_SAME_SEED = 2
_MIB = 1024 * 1024


async def stable_hash(case: TaskCase) -> Observation:
    """Two meters of one task, and one that has measured, must agree on what decides a score."""
    bench = case.bench
    again = TaskMeter(bench.task, bench.repository, bench.home).hash
    if again != bench.meter.hash:
        return failed(
            f"it is {bench.meter.hash[:12]} and then {again[:12]}", "let no fact of the task depend on chance"
        )
    return Observation(f"{again[:12]} over evaluator, inputs, commands and limits")


async def inside(case: TaskCase) -> Observation:
    """What the programs of the task see from inside their sandbox."""
    task = case.bench.task
    machine = Machine(task, case.bench.home)
    named = (("trial", task.trial), ("apply", task.apply), ("evaluator", task.evaluator))
    programs = [(reader, program) for reader, program in named if program is not None]
    if task.slots.kind == "gpu" and all(program.is_node for _, program in programs):
        return failed(
            "its slots are GPUs, but its programs are functions, and a function sees no device",
            "make the trial a command",
        )
    async with SlotPool(task.slots, case.bench.home / "slots").lease() as lease:
        commands = [(reader, program) for reader, program in programs if not program.is_node]
        seen = [await look_inside(machine, reader, program, lease) for reader, program in commands]
    problems = [problem for each in seen for problem in each.problems()]
    if problems:
        return failed("; ".join(problems), "install or open what is named; see `[trial] python` and `[data]`")
    functions = [reader for reader, program in programs if program.is_node]
    own = (
        [f"functions ({', '.join(functions)}) run in Python {platform.python_version()}"] if functions else []
    )
    return Observation("; ".join([*(each.described() for each in seen), *own]))


async def preflight(case: TaskCase) -> Observation:
    await case.bench.meter.preflight(case.bench.base, case.bench.base)
    return Observation("the recipe compiles, is complete and within its size")


async def first_score(case: TaskCase) -> Observation:
    """One score. What the evaluator refuses is detail as the gate that the baseline does not pass."""
    try:
        measured = await case.bench.measure(seed=case.bench.task.keep.seed)
    except Unmeasured as unmeasured:
        return _no_score(unmeasured)
    case.samples.append(measured)
    trials, evaluator = measured.facts["trials"], measured.facts["evaluator"]
    parts = [f"trial {sum(each['wall_ms'] for each in trials):.0f} ms"] if trials else []
    parts.append(f"evaluator {evaluator['wall_ms']:.0f} ms")
    return Observation(
        f"{case.bench.task.label} {measured.score:g} in {measured.wall_ms:.0f} ms ({', '.join(parts)})"
    )


async def noise(case: TaskCase) -> Observation:
    """How far scores scatter over seeds."""
    task = case.bench.task
    repeats = min(_MOST_REPEATS, max(task.keep.least, task.keep.baseline_repeats, 2))
    for seed in range(task.keep.seed + len(case.samples), task.keep.seed + repeats):
        case.samples.append(await case.bench.measure(seed=seed))
    mean, sd = spread(tuple(each.score for each in case.samples))
    each_ms = statistics.median(each.wall_ms for each in case.samples)
    detail = f"{mean:g} ± {sd:g} over {len(case.samples)} seeds, {each_ms:.0f} ms each"
    if sd == 0 and not task.keep.deterministic and task.keep.policy == "confident":
        return warned(
            f"{detail}; every promising trial will still be measured {task.keep.least} times",
            "say keep.deterministic = true if a score has no noise",
        )
    return Observation(detail)


async def deterministic(case: TaskCase) -> Observation:
    """Whether one seed always gives one score, and whether that is what the task says."""
    task, first = case.bench.task, case.samples[0]
    again = [(await case.bench.measure(seed=first.seed)).score for _ in range(_SAME_SEED)]
    if all(score == first.score for score in again):
        claim = "as the task says" if task.keep.deterministic else "which the task does not claim"
        return Observation(f"seed {first.seed} gave {first.score!r} {1 + len(again)} times, {claim}")
    scores = ", ".join(repr(score) for score in (first.score, *again))
    if task.keep.deterministic:
        return failed(
            f"it says that it is deterministic, but seed {first.seed} gave {scores}",
            "set keep.deterministic = false, or let recipe and evaluator draw all chance from the seed",
        )
    return Observation(f"a score has noise of its own: seed {first.seed} gave {scores}")


async def held_out(case: TaskCase) -> Observation:
    task = case.bench.task
    if not task.keep.held_out:
        if task.held_out_inputs is not None:
            return warned(
                "held_out_inputs is given, but keep.held_out is not set", "say keep.held_out = true"
            )
        return Observation("none is declared")
    measured = await case.bench.measure(seed=task.keep.seed, held_out=True)
    detail = f"{measured.score:g} on the held-out split, {case.samples[0].score:g} on the other"
    if measured.score == case.samples[0].score:
        return warned(
            f"{detail}: both splits give the same score",
            "let prepare read held_out, or give held_out_inputs, so that it is really another split",
        )
    return Observation(detail)


async def limits(case: TaskCase) -> Observation:
    """How much of its limits the baseline uses already."""
    task, facts = case.bench.task, case.samples[0].facts
    tight = [
        said
        for who, program, ends in (
            ("trial", task.trial, facts["trials"]),
            ("evaluator", task.evaluator, [facts["evaluator"]]),
        )
        if program is not None
        for end in ends
        for said in _tight(who, program, end)
    ]
    if tight:
        return warned(
            f"the baseline uses more than half of {', '.join(dict.fromkeys(tight))}",
            "raise the limit, or a slightly slower machine will fail honest trials",
        )
    unbounded = [
        who
        for who, program in (("trial", task.trial), ("evaluator", task.evaluator))
        if program is not None and program.bounds.memory_bytes is None
    ]
    if unbounded:
        return warned(f"the {' and the '.join(unbounded)} may use any amount of memory", "set memory_mb")
    return Observation("the baseline uses less than half of each")


def _no_score(unmeasured: Unmeasured) -> Observation:
    if unmeasured.status is TrialStatus.INFRA_ERROR:
        return failed(unmeasured.reason, "fix the machine; `ratchet doctor` shows what it lacks")
    if unmeasured.status is TrialStatus.DISQUALIFIED:
        return failed(
            f"the baseline does not pass its own gate: {unmeasured.reason}",
            "begin with a recipe that the evaluator accepts",
        )
    return failed(f"{unmeasured.status}: {unmeasured.reason}", "fix the recipe or the evaluator")


def _tight(who: str, program: Program, end: dict[str, Any]) -> Iterator[str]:
    bounds = program.bounds
    if end["wall_ms"] > 500 * bounds.wall_seconds:
        yield f"the {who}'s {bounds.wall_seconds:g} s ({end['wall_ms'] / 1000:.2g} s)"
    if bounds.cpu_seconds is not None and end["cpu_ms"] > 500 * bounds.cpu_seconds:
        yield f"the {who}'s {bounds.cpu_seconds:g} s of CPU time ({end['cpu_ms'] / 1000:.2g} s)"
    if bounds.memory_bytes is not None and end["peak_bytes"] > bounds.memory_bytes / 2:
        most, used = bounds.memory_bytes // _MIB, end["peak_bytes"] // _MIB
        yield f"the {who}'s {most} MB of memory ({used} MB)"


_READ: Mapping[str, Look] = {
    "the task reads": reads,
    "the evaluator is out of reach": out_of_reach,
    "the evaluator's hash is stable": stable_hash,
    "seen from inside the sandbox": inside,
    "preflight accepts the baseline": preflight,
    "the size limit has room": size,
    "the search engine": search,
    "prompts can be built": prompts,
    "tools answer": tools,
    "the baseline is measured": first_score,
}
_MEASURED: Mapping[str, Look] = {
    "noise over repeats": noise,
    "deterministic": deterministic,
    "held-out split": held_out,
    "limits have room": limits,
}


async def check_conformance(task: TaskAdapter, report: OnCheck = lambda _finding: None) -> list[TaskCheck]:
    """Look at everything that a run would need. Nothing of the task's folder is changed.

    What needs a score is left out when there is none.
    """
    found: list[TaskCheck] = []

    def add(finding: TaskCheck) -> None:
        found.append(finding)
        report(finding)

    with new_place() as place:
        watch = Stopwatch()
        try:
            check_task(task)
            await asyncio.to_thread(Machine, task, place / "home")
        except Missing as error:
            add(_check_result("the machine has what it needs", _failure(error), watch))
            return found
        except RatchetError as error:
            add(_check_result("the task can be pinned", _failure(error), watch))
            return found
        try:
            async with open_bench(task, place) as bench:
                case = TaskCase(bench)
                for what, look in _READ.items():
                    add(await _finding(what, look, case))
                for what, look in _MEASURED.items() if case.samples else ():
                    add(await _finding(what, look, case))
        except RatchetError as error:
            add(_check_result("the task can be pinned", _failure(error), watch))
    return found


async def _finding(what: str, look: Look, case: TaskCase) -> TaskCheck:
    watch = Stopwatch()
    try:
        seen = await look(case)
    except Unmeasured as unmeasured:
        seen = failed(f"{unmeasured.status}: {unmeasured.reason}", "fix the recipe or the evaluator")
    except RatchetError as error:
        seen = _failure(error)
    except Exception as error:  # noqa: BLE001 - a task is foreign code, and whatever it raises is what was found
        seen = failed(f"{type(error).__name__}: {error}", "fix the task's own code")
    return _check_result(what, seen, watch)


def _failure(error: RatchetError) -> Observation:
    return Observation(str(error), Grade.FAILED, error.hint or "")


def _check_result(what: str, seen: Observation, watch: Stopwatch) -> TaskCheck:
    return TaskCheck(part=CheckPart.TASK, what=what, seconds=watch.seconds, **seen._asdict())


async def check(
    reference: str,
    variant: str | None = None,
    *,
    attack: bool = False,
    real_home: Path | None = None,
    report: OnCheck = lambda _finding: None,
) -> list[TaskCheck]:
    """Check the task that `reference` names; with `attack` also what hostile recipes and faults come to.

    A task that cannot be read is a finding. Raises `Misuse` when there is no such task at all.
    """
    watch = Stopwatch()
    try:
        task = find_task(reference, variant)
    except Misuse as error:
        if not _is_there(reference):
            raise
        finding = _check_result("the task reads", _failure(error), watch)
        report(finding)
        return [finding]
    found = await check_conformance(task, report)
    if attack:
        found += await check_attacks(task, report, real_home=real_home)
        found += await check_harness(report)
    return found


def _is_there(reference: str) -> bool:
    names = {reference, reference.rpartition(":")[0]} - {""}
    return any(Path(name).is_dir() or name in task_names() for name in names)
