"""The executor: every step starts the moment that what it needs exists. There are no waves and no barriers.

It knows nothing of processes, models or databases. A `StepCaller` carries out the calls, an `ExecutionJournal` records
what happens and remembers what an earlier process has finished.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from .conditions import read_condition
from .errors import SpecError, StepFailed, StepHeld
from .execution import (
    LINE,
    Executed,
    ExecutionJournal,
    QuietJournal,
    Result,
    StepCall,
    StepCaller,
    StepError,
    StepLines,
    StepRecord,
    line_hash,
    lines_of,
    metrics_within,
)
from .graph import data_sources, dependencies, followed, own_names
from .reader import DEEPEST
from .references import OF_ROUNDS, Lookup, Reference, resolve, take
from .spec import AtLimit, StepType, WorkflowSpec, WorkflowStep
from .templates import fill_prompt
from .validation import check_inputs, require_valid

# A caller that keeps the limit itself reports more about what it stopped; this is for one that does not.
_GRACE_SECONDS = 1.0
Room = Callable[[StepCall], AbstractAsyncContextManager[object]]
"""Waits until there is room for a call, and gives it back when the block ends."""
PartTask = asyncio.Task["StepRecord"]
PartOfStep = Callable[[WorkflowStep, str, Mapping[str, Any]], Awaitable["StepRecord"]]
MOST_ITEMS = 100_000


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises what went wrong first, as it was raised, and not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as raised:
        raise raised.exceptions[0] from None


async def call_until_done(
    call: StepCall, caller: StepCaller, journal: ExecutionJournal, room: Room, *, guarded: bool
) -> Result | StepError:
    """The result of the step. Room is taken only while something is called, not in the pauses. Raises `StepHeld`."""
    step = call.step
    tries = 1 + (step.max_retries if step.retry_on_failure else 0)
    own_tool = call.tool
    for number in range(1, tries + 2):
        call = replace(call, number=number)
        try:
            async with AsyncExitStack() as place:
                await place.enter_async_context(room(call))
                await journal.started(call)
                began = time.monotonic()
                async with AsyncExitStack() as around:
                    if call.lines is not None:
                        call.lines.begin()
                        await around.enter_async_context(call.lines.lending(place, partial(room, call)))
                    await around.enter_async_context(_limited(step.timeout) if guarded else nullcontext())
                    result = await caller.call(call)
                if call.lines is not None:
                    result = replace(result, value=lines_of(result.value))
        except StepFailed as failed:
            error = StepError(str(failed), number, failed.metrics, failed.hint)
            fallback = caller.fallback(call) if call.tool == own_tool else None
            if number < tries and not failed.final:
                pause = pause_before(step, number)
            elif fallback is not None and fallback != own_tool:
                pause, tries, call = 0.0, number + 1, replace(call, tool=fallback)
            elif failed.blocks:
                raise StepHeld(f"{failed} ({failed.hint})" if failed.hint else str(failed)) from failed
            else:
                return error
            await journal.retrying(call, error, pause)
            await asyncio.sleep(pause)
            continue
        if "wall_ms" not in result.metrics:
            took = {"wall_ms": (time.monotonic() - began) * 1000}
            result = replace(result, metrics={**result.metrics, **took})
        return replace(result, tries=number)
    raise AssertionError("the last try returns")


def pause_before(step: WorkflowStep, retry: int) -> float:
    """The seconds to wait before a retry, the first of which is 1. Steps that failed together draw different ones."""
    longest = min(step.backoff_most, step.backoff_seconds * step.backoff_factor ** (retry - 1))
    return longest * (1 - step.backoff_jitter * random.random())


@asynccontextmanager
async def _limited(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds + _GRACE_SECONDS):
            yield
    except TimeoutError as error:
        raise StepFailed(f"took longer than {seconds:g} s") from error


async def execute(
    spec: WorkflowSpec,
    inputs: Mapping[str, Any],
    caller: StepCaller,
    *,
    journal: ExecutionJournal | None = None,
    concurrency: int | None = None,
    room: Room | None = None,
    guarded: bool = True,
) -> Executed:
    """Run a workflow to its end.

    As many calls run at once as `concurrency` says, by default one for each processor, or as `room` lets in. A call
    that overruns the time of its step is cancelled, unless the caller sees to that itself (`guarded` is false).

    A step that fails takes those with it that need it; everything else runs, so as much as possible is there in the
    end. Raises `SpecError` before anything runs. What else a caller or a journal raises ends the execution, with
    whatever runs cancelled.
    """
    require_valid(spec)
    slots = asyncio.Semaphore(concurrency or os.cpu_count() or 1)
    run = _Execution(caller, journal or QuietJournal(), room or (lambda _: slots), guarded)
    scope = _Scope(run, spec, check_inputs(spec, inputs), prefix="", depth=1)
    await scope.run()
    failed = [f"{name}: {record.error}" for name, record in run.records.items() if record.status == "failed"]
    # A step that holds others repeats the error of the one in it that failed.
    return Executed(scope.status(), scope.outputs(), run.records, failed[0] if failed else None)


class _Execution:
    """What every scope of one execution shares."""

    def __init__(self, caller: StepCaller, journal: ExecutionJournal, room: Room, guarded: bool) -> None:
        self.caller = caller
        self.journal = journal
        self.room = room
        self.guarded = guarded
        self.records: dict[str, StepRecord] = {}
        self.open: dict[str, StepCall] = {}
        """What has begun and not ended."""


class _Scope:
    """One workflow that runs: the whole of it, or one inside a step."""

    def __init__(
        self,
        run: _Execution,
        spec: WorkflowSpec,
        inputs: Mapping[str, Any],
        *,
        prefix: str,
        depth: int,
        rounds: tuple[int, ...] = (),
    ) -> None:
        self._run = run
        self._spec = spec
        self._inputs = inputs
        self._prefix = prefix
        self._depth = depth
        self._rounds = rounds
        self._steps = {step.step_id: step for step in spec.steps}
        self._records: dict[str, StepRecord] = {}
        self._needs = dependencies(spec)
        self._missing = {step_id: len(needs) for step_id, needs in self._needs.items()}
        self._needed_by: dict[str, list[str]] = {step_id: [] for step_id in self._steps}
        for step_id, needs in self._needs.items():
            for need in needs:
                self._needed_by[need].append(step_id)
        self._lines = {step.step_id: StepLines() for step in spec.steps if step.stream}
        self._followed = {step.step_id: followed(step, self._steps) for step in spec.steps if self._lines}

    async def run(self) -> None:
        async with task_group() as group:
            self._start(group, [step_id for step_id, missing in self._missing.items() if missing == 0])

    def status(self) -> str:
        statuses = {record.status for record in self._records.values()}
        if "failed" in statuses:
            return "failed"
        return "held" if "held" in statuses else "completed"

    def outputs(self) -> dict[str, Any]:
        """What the workflow declares; if that is nothing, the values of the steps that no other one needs."""
        if not self._spec.outputs:
            last = [step_id for step_id in self._steps if not self._needed_by[step_id]]
            return {step_id: self._records[step_id].value for step_id in last if self._has_value(step_id)}
        found = {}
        for output in self._spec.outputs:
            try:
                found[output.name] = resolve(output.source_reference, self._lookup({}))
            except _Absent:
                continue
            except StepFailed:
                found[output.name] = None
        return found

    def _start(self, group: asyncio.TaskGroup, ready: Iterable[str]) -> None:
        """Steps of one parallel group are started next to each other, so that they run at the same time."""
        order = list(ready)
        first: dict[int | str, int] = {}
        for index, step_id in enumerate(order):
            number = self._steps[step_id].parallel_group
            if number is not None:
                first.setdefault(number, index)
        if first:
            place = {
                step_id: (first.get(self._steps[step_id].parallel_group or 0, index), index)
                if self._steps[step_id].parallel_group is not None
                else (index, index)
                for index, step_id in enumerate(order)
            }
            order.sort(key=place.__getitem__)
        for step_id in order:
            source = self._followed.get(step_id)
            if source is not None:
                self._lines[source].join(step_id)
            group.create_task(self._do(group, self._steps[step_id]))

    async def _do(self, group: asyncio.TaskGroup, step: WorkflowStep) -> None:
        waiting = self._needed_by[step.step_id]
        lines = self._lines.get(step.step_id)
        if lines is not None:
            following = [each for each in waiting if self._followed[each] == step.step_id]

            def let_follow() -> None:
                nonlocal waiting
                waiting = [each for each in waiting if each not in following]
                self._release(group, following)

            lines.on_first = let_follow
        record = await self._record_of(step)
        source = self._followed.get(step.step_id)
        if source is not None:
            self._lines[source].leave(step.step_id)
        self._records[step.step_id] = record
        self._run.records[self._prefix + step.step_id] = record
        if lines is not None:
            lines.on_first = None
            lines.close(record)
        if record.status != "held":
            self._release(group, waiting)

    def _release(self, group: asyncio.TaskGroup, waiting: Iterable[str]) -> None:
        """One of the steps that these wait for need not be waited for any more."""
        ready = []
        for step_id in waiting:
            self._missing[step_id] -= 1
            if self._missing[step_id] == 0:
                ready.append(step_id)
        self._start(group, ready)

    async def _record_of(self, step: WorkflowStep) -> StepRecord:
        name = self._prefix + step.step_id
        known = self._run.journal.finished(name)
        if known is not None:
            return _ended(known)
        try:
            reason, wanted = self._reason_to_skip(step)
            if reason:
                await self._run.journal.skipped(name, step, reason, wanted=wanted)
                return StepRecord("skipped", error=None if wanted else reason)
            if step.for_each is not None:
                return await self._do_each(step, name)
            return await self._do_rounds(step, name, {})
        except StepFailed as failed:
            # Before anything was called: what it was to be given does not exist.
            call = StepCall(name, step, self._spec, {}, step.tool_name)
            return await self._end(call, StepError(str(failed), 1, failed.metrics, failed.hint))

    def _reason_to_skip(self, step: WorkflowStep) -> tuple[str, bool]:
        """Why a step is not run, if it is not, and whether the workflow wants it so."""
        for need in sorted(self._needs[step.step_id]):
            # There is none yet of a step that still gives its lines.
            record = self._records.get(need)
            if record is None:
                continue
            if record.status == "failed" or (record.status == "skipped" and record.error):
                return f"needs {need}, which was not completed", False
        sources = data_sources(step) or self._needs[step.step_id]
        ended = [self._records.get(source) for source in sources]
        if ended and all(record is not None and record.status == "skipped" for record in ended):
            return "everything it takes from was skipped", True
        if step.when is not None and not read_condition(step.when).holds(self._lookup({}, absent=None)):
            return f"its condition does not hold: {step.when}", True
        return "", False

    async def _do_each(self, step: WorkflowStep, name: str) -> StepRecord:
        source = self._followed.get(step.step_id)
        items: list[Any] = [] if source else self._items(step)
        call = StepCall(name, step, self._spec, {}, step.tool_name, container=True)
        self._run.open[name] = call
        await self._run.journal.started(call)
        if source:
            lines = self._lines[source]
            tasks = await self._follow(step, name, lines)
            assert lines.end is not None, "it is followed to its end"
            if lines.end.status == "held":
                self._run.open.pop(name)
                return StepRecord("held")
            if lines.end.status != "completed":
                return await self._end(call, StepError(f"needs {source}, which was not completed"))
            items = lines.end.value
        else:
            tasks = {}
            async with task_group() as group:
                for index, item in enumerate(items):
                    if step.stream:
                        await self._lines[step.step_id].room(index)
                    around = {"item": item, "index": index}
                    tasks[index] = group.create_task(
                        self._do_part(self._do_rounds, step, f"{name}[{index}]", around)
                    )
                    self._pass_on(step, tasks, index)
        if len(items) > MOST_ITEMS:
            return await self._end(call, StepError(_too_many(len(items))))
        records = [tasks[index].result() for index in range(len(items))]
        bad = next((record for record in records if record.status == "failed"), None)
        taken = {"items": len(items), **metrics_within(records)}
        if bad is not None:
            first = records.index(bad)
            return await self._end(call, StepError(f"item {first}: {bad.error}", bad.tries, taken))
        if any(record.status == "held" for record in records):
            self._run.open.pop(name)
            return StepRecord("held")
        return await self._end(call, Result([record.value for record in records], taken))

    def _items(self, step: WorkflowStep) -> list[Any]:
        items = resolve(step.for_each, self._lookup({}, absent=None))
        if not isinstance(items, list):
            raise StepFailed(f"for_each needs a list, not {type(items).__name__}", final=True)
        if len(items) > MOST_ITEMS:
            raise StepFailed(_too_many(len(items)), final=True)
        return items

    async def _follow(self, step: WorkflowStep, name: str, lines: StepLines) -> dict[int, PartTask]:
        """Begin with each line as it comes. Another one in the place of one that was done gets a place of its own: what
        was done before stays on record."""
        tasks: dict[int, PartTask] = {}
        places: dict[str, tuple[str, PartTask]] = {}
        async with task_group() as group:
            async for index, item in lines.follow(step.step_id):
                if index >= MOST_ITEMS:
                    lines.count(step.step_id)
                    continue
                if step.stream:
                    await self._lines[step.step_id].room(index)
                line, place = line_hash(item), f"{name}[{index}]"
                known = self._run.journal.finished(place)
                taken = places[place][0] if place in places else known and known.metrics.get(LINE)
                if taken not in (None, line):
                    place = f"{name}[{index}~{line}]"
                if place not in places:
                    around = {"item": item, "index": index, LINE: line}
                    task = group.create_task(self._do_part(self._do_rounds, step, place, around))
                    places[place] = line, task
                tasks[index] = places[place][1]
                tasks[index].add_done_callback(lambda _: lines.count(step.step_id))
                self._pass_on(step, tasks, index)
        return tasks

    def _pass_on(self, step: WorkflowStep, tasks: Mapping[int, PartTask], index: int) -> None:
        """Give what was done for each item as a line, in the order of the items, if the step streams."""
        lines = self._lines.get(step.step_id)
        if lines is None:
            return

        def give(_: PartTask) -> None:
            while (task := tasks.get(lines.given)) is not None and task.done() and not task.cancelled():
                if task.exception() is not None or task.result().status != "completed":
                    lines.stop()
                    return
                lines.take(task.result().value)

        tasks[index].add_done_callback(give)

    async def _do_rounds(self, step: WorkflowStep, name: str, around: Mapping[str, Any]) -> StepRecord:
        """Do a step until its condition holds, if it has one. Each round is recorded, so that it is done once."""
        repeat = step.repeat
        if repeat is None:
            return await self._do_one(step, name, around)
        condition = read_condition(repeat.until)
        last = resolve(repeat.start, self._lookup(around, absent=None), own=own_names(step) - OF_ROUNDS)
        line = around.get(LINE)
        call = StepCall(name, step, self._spec, {}, step.tool_name, container=True, line=line)
        self._run.open[name] = call
        await self._run.journal.started(call)
        records: list[StepRecord] = []
        for number in range(repeat.limit):
            this = f"{name}[{number}]"
            if number and repeat.pause_seconds and self._run.journal.finished(this) is None:
                await asyncio.sleep(repeat.pause_seconds)
            values = {**around, "last": last, "round": number}
            record = await self._do_part(self._do_one, step, this, values)
            records.append(record)
            if record.status == "held":
                self._run.open.pop(name)
                return StepRecord("held")
            if record.status == "failed":
                error = StepError(f"round {number}: {record.error}", record.tries, metrics_within(records))
                return await self._end(call, error)
            last = record.value
            if condition.holds(self._lookup({**values, "last": last}, absent=None)):
                break
        else:
            if repeat.at_limit is AtLimit.FAIL:
                why = f"after {repeat.limit} rounds this does not hold: {repeat.until}"
                return await self._end(call, StepError(why, 1, metrics_within(records)))
        return await self._end(call, Result(last, {"rounds": len(records), **metrics_within(records)}))

    async def _do_part(
        self, do: PartOfStep, step: WorkflowStep, name: str, around: Mapping[str, Any]
    ) -> StepRecord:
        """An item of a list, or a round."""
        known = self._run.journal.finished(name)
        if known is not None:
            record = _ended(known)
        else:
            try:
                record = await do(step, name, around)
            except StepFailed as failed:
                call = StepCall(name, step, self._spec, {}, step.tool_name, line=around.get(LINE))
                record = await self._end(call, StepError(str(failed), 1, failed.metrics, failed.hint))
        self._run.records[name] = record
        return record

    async def _do_one(self, step: WorkflowStep, name: str, around: Mapping[str, Any]) -> StepRecord:
        lookup = self._lookup(around, absent=None)
        own = own_names(step)
        values = resolve(step.input_mapping, lookup, own=own)
        prompt = step.prompt_template and fill_prompt(step.prompt_template, values, lookup, own=own)
        holds = step.step_type is StepType.SUB_WORKFLOW or step.workflow_spec is not None
        rounds = (*self._rounds, around["round"]) if "round" in around else self._rounds
        call = StepCall(
            name,
            step,
            self._spec,
            values,
            step.tool_name,
            prompt,
            container=holds,
            rounds=rounds,
            lines=None if "item" in around else self._lines.get(step.step_id),
            line=around.get(LINE),
        )
        self._run.open[name] = call
        try:
            return await (self._do_workflow(call) if holds else self._do_call(call))
        except StepHeld as held:
            await self._run.journal.held(call, str(held))
            self._run.open.pop(name)
            return StepRecord("held", error=str(held))

    async def _do_call(self, call: StepCall) -> StepRecord:
        run = self._run
        end = await call_until_done(call, run.caller, run.journal, run.room, guarded=run.guarded)
        return await self._end(call, end)

    async def _do_workflow(self, call: StepCall) -> StepRecord:
        """Run the workflow that a step holds. Where it fails, another tool may stand in for it."""
        if self._depth >= DEEPEST:
            raise StepFailed(f"workflows lie more than {DEEPEST} deep inside one another", final=True)
        spec = call.step.workflow_spec or await self._run.caller.sub_workflow(call)
        begun = False

        async def inside(values: Mapping[str, Any]) -> Result | StepError | None:
            nonlocal begun
            await self._run.journal.started(call)
            begun = True
            return await self._run_inside(replace(call, values=values), spec)

        try:
            end = await self._run.caller.around(call, inside)
        except StepFailed as failed:
            await self._stop_inside(call, str(failed))
            end = StepError(str(failed), 1, failed.metrics, failed.hint)
        if end is None:
            self._run.open.pop(call.name)
            return StepRecord("held")
        instead = self._run.caller.fallback(call) if isinstance(end, StepError) else None
        if not isinstance(end, StepError) or instead is None or instead == call.tool:
            return await self._end(call, end)
        if begun:
            await self._run.journal.retrying(call, end, 0.0)
        return await self._do_call(replace(call, tool=instead, container=False))

    async def _run_inside(self, call: StepCall, spec: WorkflowSpec) -> Result | StepError | None:
        try:
            require_valid(spec)
            inputs = check_inputs(spec, call.values)
        except SpecError as error:
            raise StepFailed(str(error), final=True) from error
        inner = _Scope(
            self._run, spec, inputs, prefix=f"{call.name}/", depth=self._depth + 1, rounds=call.rounds
        )
        await inner.run()
        taken = metrics_within(inner._records.values())
        match inner.status():
            case "held":
                return None
            case "failed":
                return StepError(inner.first_failure(), 1, taken)
        return Result(inner.outputs(), taken)

    async def _stop_inside(self, call: StepCall, why: str) -> None:
        """Record as stopped what still ran when the step that holds it was stopped."""
        stopped = StepError(f"stopped with {call.name}: {why}")
        for name, each in [*self._run.open.items()]:
            if name.startswith(f"{call.name}/"):
                self._run.records[name] = await self._end(each, stopped)

    def first_failure(self) -> str:
        return next(
            f"{step_id}: {record.error}"
            for step_id, record in self._records.items()
            if record.status == "failed"
        )

    async def _end(self, call: StepCall, end: Result | StepError) -> StepRecord:
        self._run.open.pop(call.name, None)
        if call.line is not None:
            # By it a later process, or a later try, knows for which line it was done.
            end = replace(end, metrics={**end.metrics, LINE: call.line})
        if isinstance(end, StepError):
            await self._run.journal.failed(call, end)
        else:
            await self._run.journal.completed(call, end)
        return _ended(end)

    def _has_value(self, step_id: str) -> bool:
        record = self._records.get(step_id)
        return record is not None and record.status == "completed"

    def _lookup(self, around: Mapping[str, Any], *, absent: Any = ...) -> Lookup:
        """How references are answered here. What a skipped step would have given is `absent`, or an error."""

        def find(reference: Reference) -> Any:
            if reference.kind == "inputs":
                return take(reference, self._inputs.get(reference.name))
            if reference.kind == "last" and around["last"] is None:
                # Before the first round there is nothing, and nothing inside of it.
                return None
            if reference.kind != "steps":
                return take(reference, around[reference.kind])
            if self._has_value(reference.name):
                return take(reference, self._records[reference.name].value)
            if absent is ...:
                raise _Absent
            return absent

        return find


def _too_many(count: int) -> str:
    return f"for_each over {count} items; at most {MOST_ITEMS} can be done"


class _Absent(Exception):
    """What is asked for was never made."""


def _ended(end: Result | StepError) -> StepRecord:
    if isinstance(end, StepError):
        return StepRecord("failed", metrics=end.metrics, error=end.reason, tries=end.tries)
    return StepRecord("completed", end.value, end.metrics, cached=end.cached, tries=end.tries)
