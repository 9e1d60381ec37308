"""Looking at a task by reading it: its files, its prompts, what a search can change, what its tools answer."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from ratchet.research.checking.bench import Bench
from ratchet.research.checking.case import Case, Seen, failed, warned
from ratchet.research.checking.samples import sample
from ratchet.research.sessions.tools.own import task_tools

from ratchet.engines.search.program import Program
from ratchet.engines.tool_server import Way
from ratchet.kernel import Misuse
from ratchet.ledger.trial_rows import Trial
from ratchet.research.adapter import TaskAdapter
from ratchet.research.sessions import Idea, Sitting, system_prompt, user_prompt
from ratchet.research.tasks import initial_files, task_hash
from ratchet.workspaces import Workspace

# Less than this says nothing: an empty `__init__.py` is the same everywhere.
_LEAST_BYTES = 8
_LONG_PROMPT = 200_000


async def reads(case: Case) -> Seen:
    task = case.bench.task
    files = initial_files(task)
    if task_hash(task) != task.sha256:
        return failed(
            "the pinned copy is not what was copied", "start again when nobody edits the task's folder"
        )
    how = (
        "is only read"
        if task.trial is None
        else "runs as a function"
        if task.trial.is_node
        else "is a command"
    )
    names = ", ".join(each.name for each in task.roster)
    return Seen(f"the recipe {how}; {len(files)} files, {sum(map(len, files.values()))} bytes; for {names}")


async def out_of_reach(case: Case) -> Seen:
    """No file of the evaluator, and none of the held-out split alone, may lie where the recipe can read it."""
    secret, open_to_all = await asyncio.to_thread(_contents, case.bench.task)
    shared = [f"{place} is {secret[digest]}" for place, digest in open_to_all.items() if digest in secret]
    if shared:
        return failed(
            f"the recipe can read what it must not know: {', '.join(shared[:5])}",
            "remove the copy from inputs, recipe and stage files",
        )
    return Seen(f"none of {len(secret)} files of the evaluator and the held-out split is shown to the recipe")


async def size(case: Case) -> Seen:
    task = case.bench.task
    with await asyncio.to_thread(case.bench.repository.workspace, case.bench.base) as workspace:
        found = await asyncio.to_thread(task.size_check, workspace.path)
    if found.limit_bytes is None:
        return Seen(f"{found.total_bytes:,} bytes; there is no limit")
    told = f"{found.total_bytes:,} of {found.limit_bytes:,} bytes"
    if found.verdict == "block":
        return failed(f"{told}: the baseline is too large", "raise size.limit_bytes")
    if 10 * found.total_bytes > 9 * found.limit_bytes:
        return warned(f"{told}: there is little room for changes", "raise size.limit_bytes")
    return Seen(told)


async def search(case: Case) -> Seen:
    """What the search engine could change."""
    with await asyncio.to_thread(case.bench.repository.workspace, case.bench.base) as workspace:
        files = [_pattern(workspace.path, path) for path in case.bench.task.recipe]
        try:
            found = await asyncio.to_thread(
                Program.read, workspace.path, files, undeclared=False, go_on=lambda: None
            )
        except Misuse as error:
            if "nothing to search" not in str(error):
                raise
            return warned("no constant is declared, so the search engine has nothing to do", error.hint or "")
    names = ", ".join(each.name for each in found.constants[:5])
    more = f" and {len(found.constants) - 5} more" if len(found.constants) > 5 else ""
    return Seen(f"{len(found.constants)} constants: {names}{more}")


async def prompts(case: Case) -> Seen:
    """What each specialist would be told, for every way of giving it tools, with and without a lineage."""
    task, longest = case.bench.task, 0
    with await asyncio.to_thread(case.bench.repository.workspace, case.bench.base) as workspace:
        for specialist in task.roster:
            for way in Way:
                told = user_prompt(task, specialist, directory=workspace.path, parent=0, lineage="", way=way)
                for lineage in (True, False):
                    system = system_prompt(task, specialist, lineage=lineage, way=way)
                    longest = max(longest, len(system) + len(told))
    told = f"{longest:,} characters is the longest of {2 * len(Way) * len(task.roster)}"
    if longest > _LONG_PROMPT:
        return warned(told, "shorten the knowledge: every session pays for it")
    return Seen(told)


async def tools(case: Case) -> Seen:
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
    return Seen(f"{', '.join(tool.name for tool in own)} answered" if own else "it has none of its own")


def _contents(task: TaskAdapter) -> tuple[dict[str, str], dict[str, str]]:
    """What must not be known, by its hash, and what everybody may read, by its place."""
    inputs = {} if task.inputs is None else dict(_hashes(task.root / task.inputs))
    secret = {
        digest: f"{task.evaluator_dir}/{name}" for name, digest in _hashes(task.root / task.evaluator_dir)
    }
    if task.held_out_inputs is not None:
        held = dict(_hashes(task.root / task.held_out_inputs))
        # What both splits have under one name is no secret of either.
        secret |= {
            digest: f"{task.held_out_inputs}/{name}"
            for name, digest in held.items()
            if inputs.get(name) != digest
        }
    committed = {place: hashlib.sha256(content).hexdigest() for place, content in initial_files(task).items()}
    return secret, {**{f"{task.inputs}/{name}": digest for name, digest in inputs.items()}, **committed}


def _hashes(directory: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.stat().st_size >= _LEAST_BYTES:
            with path.open("rb") as file:
                yield str(path.relative_to(directory)), hashlib.file_digest(file, "sha256").hexdigest()


def _pattern(root: Path, path: str) -> str:
    return f"{path}/*" if (root / path).is_dir() else path


def _sitting(bench: Bench, workspace: Workspace) -> Sitting:
    return Sitting(
        run_id=0,
        task=bench.task,
        specialist=bench.task.doers[0],
        repository=bench.repository,
        workspace=workspace,
        parent=0,
        submit=_nobody_submits,
        read=_no_ledger,
        write=_no_ledger,
    )


async def _nobody_submits(_idea: Idea) -> Trial:
    raise Misuse("a check hands in nothing")


def _no_ledger() -> NoReturn:
    raise Misuse("a check has no ledger")


def secrets_of(task: TaskAdapter) -> dict[str, str]:
    """The hashes of what the recipe must not know, with their names."""
    return _contents(task)[0]
