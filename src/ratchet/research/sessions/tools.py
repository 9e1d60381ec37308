"""The tools of a session: submit, check, read history, rebase, write lessons, and the task's own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ratchet.engines import EngineTool
from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError, TrialStatus, decoded, exp_id
from ratchet.ledger import Transaction
from ratchet.ledger.research import add_lesson, list_lessons
from ratchet.ledger.trial_pages import ancestors, children, kept_trials, latest_trials, near_misses
from ratchet.ledger.trials import Trial, get_trial
from ratchet.research.adapter import Program, TaskAdapter, ToolCommand
from ratchet.research.measurement.checkout import RecipePaths, read_recipe, recipe_path
from ratchet.research.measurement.inspection import compiler
from ratchet.research.sessions import inputs, parameters
from ratchet.research.sessions.context import (
    OFFSET,
    TRIAL,
    SessionContext,
    TrialSnapshot,
    form,
    page,
    row,
    strays_in,
    text,
    tool_answer,
)
from ratchet.research.sessions.inputs import Idea, trial_number
from ratchet.research.views.trials import feedback_of
from ratchet.sandbox import Bounds, Finished, Node, Policy, run
from ratchet.sandbox.policy import is_shown

_REASON = 4000


def submit_trial(context: SessionContext) -> EngineTool:
    async def use(given: Mapping[str, Any]) -> str:
        idea = Idea(
            hypothesis=inputs.hypothesis(given["hypothesis"]),
            expected_delta=inputs.expected_delta(given["expected_delta"]),
            notes=inputs.notes(given.get("notes", "")),
            parent=_parent(context, given.get("parent_exp")),
        )
        trial = await context.hand_in(idea)
        result = _result(context, trial)
        if trial.status is TrialStatus.KEEP and context.trials_left:
            result |= await _stand_on(context, trial)
        return tool_answer(result)

    expected = {
        "type": ["string", "number"],
        "description": "the change of the score that you expect, such as -0.02",
    }
    hypothesis = "one line of 10 to 300 characters: what you changed, and why it should help"
    return EngineTool(
        "submit_trial",
        "Submit your workspace as it is. It is committed, measured, and kept if it is better than the best. "
        "This takes as long as a trial takes; the answer tells how it went.",
        form(
            {"hypothesis": text(hypothesis, longest=2000), "expected_delta": expected},
            {
                "notes": text("anything that later specialists should know", longest=2 * inputs.NOTES),
                "parent_exp": {**TRIAL, "description": "the trial that your workspace stands on, as a check"},
            },
        ),
        use,
    )


def _parent(context: SessionContext, claimed: str | int | None) -> int:
    if claimed is not None and (number := inputs.trial_number(claimed)) != context.parent:
        raise Misuse(
            f"your workspace stands on {exp_id(context.parent)}, not on {exp_id(number)}",
            hint="leave parent_exp out, or use rebase_to before you edit",
        )
    return context.parent


async def _stand_on(context: SessionContext, trial: Trial) -> dict[str, Any]:
    """Continue from what was kept. The trial was made, whatever becomes of the workspace."""
    try:
        await context.rebase(context.snapshot(trial.number))
    except RatchetError as error:
        return {"workspace": f"cannot be used as it is: {error}. Use rebase_to."}
    return {"workspace_stands_on": trial.exp_id}


def _result(context: SessionContext, trial: Trial) -> dict[str, Any]:
    if trial.status is not None and not trial.status.tried:
        return {
            "status": trial.status,
            "reason": (trial.reason or "")[:_REASON],
            "what_to_do": "The machine could not measure it; that says nothing about your idea. End the session.",
        }
    standing = context.standing()
    return {
        "exp_id": trial.exp_id,
        "status": trial.status,
        "score": trial.score,
        "delta_vs_best": trial.delta,
        "compared_to": None if trial.compared_to is None else exp_id(trial.compared_to),
        "reason": (trial.reason or "")[:_REASON],
        **feedback_of(trial),
        "best": {"exp_id": standing.best_exp_id, "score": standing.best_score},
        "trials_left_in_this_session": context.trials_left,
        "workspace_stands_on": exp_id(context.parent),
    }


# So that an answer stays below what is shown of one at once.
_SHOWN = 12_000
_NAMES = 200


def read_snapshot(context: SessionContext) -> EngineTool:
    async def use(given: Mapping[str, Any]) -> str:
        found = context.snapshot(trial_number(given["exp_id"]))
        if "path" not in given:
            return tool_answer(
                {**row(found.trial), "files": await asyncio.to_thread(_names, context, found.commit)}
            )
        path = recipe_path(context.task, given["path"])
        content = await asyncio.to_thread(context.repository.read_file, found.commit, path)
        shown = page(decoded(content), given.get("offset", 0), size=_SHOWN)
        return tool_answer({**row(found.trial), "path": path, **shown})

    return EngineTool(
        "read_snapshot",
        "Read a file of the recipe as any trial had it, kept or not. Without a path it tells which files there are.",
        form({"exp_id": TRIAL}, {"path": text("a file of the recipe", longest=1000), "offset": OFFSET}),
        use,
    )


def diff_snapshots(context: SessionContext) -> EngineTool:
    async def use(given: Mapping[str, Any]) -> str:
        old, new = (context.snapshot(trial_number(given[name])) for name in ("exp_a", "exp_b"))
        changes = await asyncio.to_thread(context.repository.changes, old.commit, new.commit)
        diff = await asyncio.to_thread(context.repository.diff, old.commit, new.commit)
        paths = [change.path for change in changes]
        shown = page(diff, given.get("offset", 0), size=_SHOWN)
        return tool_answer(
            {"exp_a": row(old.trial), "exp_b": row(new.trial), "files": paths[:_NAMES], **shown}
        )

    return EngineTool(
        "diff_snapshots",
        "How the files of two trials differ, as a patch from exp_a to exp_b.",
        form({"exp_a": TRIAL, "exp_b": TRIAL}, {"offset": OFFSET}),
        use,
    )


def _names(context: SessionContext, commit: str) -> list[str]:
    return list(RecipePaths(context.task.recipe).within(context.repository.list_files(commit)))[:_NAMES]


def rebase_to(context: SessionContext) -> EngineTool:
    async def use(given: Mapping[str, Any]) -> str:
        found = context.snapshot(trial_number(given["exp_id"]))
        await asyncio.to_thread(_check_files, context, found)
        await context.rebase(found)
        return tool_answer(
            {"ok": True, "workspace_stands_on": found.trial.exp_id, "parent": row(found.trial)}
        )

    return EngineTool(
        "rebase_to",
        "Bring your workspace to the files of another trial, kept or not, 000 being the baseline. "
        "Your own edits are lost. The trials you submit from then on have that trial as their parent.",
        form({"exp_id": TRIAL}),
        use,
    )


def _check_files(context: SessionContext, found: TrialSnapshot) -> None:
    """Raises `Misuse` for a trial with changes that were never allowed: they would be taken over with its files."""
    changed = context.repository.changes(context.baseline_commit(), found.commit)
    recipe = RecipePaths(context.task.recipe)
    outside = [change.path for change in changed if not recipe.covers(change.path)]
    if outside:
        raise Misuse(
            f"trial {found.trial.exp_id} changed {outside[0]}, which is no part of the recipe",
            hint="choose another trial; this one can only be read",
        )


def read_output(context: SessionContext) -> EngineTool:
    async def use(given: Mapping[str, Any]) -> str:
        found = context.outputs.read(given["output"], given.get("offset", 0))
        if found is None:
            raise NotFound("output", given["output"])
        return found

    return EngineTool(
        "read_output",
        "Read on in the answer of a tool that was cut. The answer says which output and offset that is.",
        form({"output": {"type": "integer", "minimum": 1}}, {"offset": OFFSET}),
        use,
    )


_TAIL = 2000
_SHIPPED = Path(__file__).parents[1] / "shipped"


def task_tools(context: SessionContext) -> list[EngineTool]:
    return [
        *context.task.tools(context.workspace.path),
        *(_command(context, each) for each in context.task.tool_commands),
    ]


def _command(context: SessionContext, command: ToolCommand) -> EngineTool:
    async def use(given: Mapping[str, Any]) -> str:
        question = {"candidate": str(context.workspace.path), "given": dict(given)}
        done = await _run(context, command.program, json.dumps(question).encode())
        if not done.ok:
            said = decoded(done.stderr).strip()[-_TAIL:]
            raise Misuse(f"{command.name} failed: {done.problem}" + (f"\n{said}" if said else ""))
        return decoded(done.stdout)

    return EngineTool(command.name, command.description, command.input_schema or form(), use)


async def _run(context: SessionContext, program: Program, stdin: bytes) -> Finished:
    task, directory = context.task, context.workspace.path
    policy = Policy(
        readable=(directory, *((task.root / task.inputs,) if task.inputs else ())),
        # It may import what a model wrote, which must not find the evaluators that come with Ratchet.
        hidden=(_SHIPPED,) if is_shown(_SHIPPED) else (),
        environment={"PATH": os.environ.get("PATH", os.defpath), **task.environment},
    )
    if program.is_node:
        node = Node(task.root / program.file, function=program.function, modules=program.modules)
        return await run(node, stdin=stdin, bounds=program.bounds, policy=policy)
    inputs = str(task.root / task.inputs) if task.inputs else ""
    values = {"{python}": sys.executable, "{candidate}": str(directory), "{inputs}": inputs}
    argv = [_filled(word, values) for word in program.argv]
    return await run(argv, cwd=directory, stdin=stdin, bounds=program.bounds, policy=policy)


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


_PAGE = 20
_NOTES = 2000
_OF_A_TRIAL = ("trial", "ancestors", "children")
_PAGED = ("recent", "mine", "kept")
_VIEWS = (*_PAGED, "near_misses", *_OF_A_TRIAL, "lessons")


def read_lineage(context: SessionContext) -> EngineTool:
    async def use(given: Mapping[str, Any]) -> str:
        view = given["view"]
        if view in _OF_A_TRIAL and "exp_id" not in given:
            raise Misuse(f"the view {view} is one of a trial", hint="give its exp_id")
        with context.read() as tx:
            if view == "lessons":
                return tool_answer(_lessons(tx, context, given.get("before")))
            if view == "trial":
                return tool_answer(_whole(get_trial(tx, context.run_id, trial_number(given["exp_id"]))))
            return tool_answer(_page(_trials(tx, context, view, given), goes_on=view in _PAGED))

    return EngineTool(
        "read_lineage",
        "Read the history of this run: `recent` trials, `mine`, those `kept`, `near_misses` (good scores that were "
        "not kept), one `trial` with all that is known of it, its `ancestors` and its `children`, and `lessons`. "
        f"A page has {_PAGE} rows; `before` reads the next one of those that say `next_before`.",
        form(
            {"view": {"type": "string", "enum": list(_VIEWS)}},
            {
                "exp_id": TRIAL,
                "before": {**TRIAL, "description": "the `next_before` of the page that you have read"},
            },
        ),
        use,
    )


def _trials(tx: Transaction, context: SessionContext, view: str, given: Mapping[str, Any]) -> list[Trial]:
    run_id = context.run_id
    before = trial_number(given["before"]) if "before" in given else None
    number = trial_number(given["exp_id"]) if "exp_id" in given else 0
    views: dict[str, Callable[[], list[Trial]]] = {
        "recent": lambda: latest_trials(tx, run_id, before=before, limit=_PAGE),
        "mine": lambda: latest_trials(
            tx, run_id, specialist=context.specialist.name, before=before, limit=_PAGE
        ),
        "kept": lambda: kept_trials(tx, run_id, before=before, limit=_PAGE),
        "near_misses": lambda: near_misses(tx, run_id, context.task.direction, limit=_PAGE),
        "ancestors": lambda: ancestors(tx, run_id, number, limit=_PAGE),
        "children": lambda: children(tx, run_id, number, limit=_PAGE),
    }
    return views[view]()


def _page(found: list[Trial], *, goes_on: bool) -> dict[str, Any]:
    """The rows that tell something about an idea. The next page begins behind the last row, shown or not."""
    shown = [row(trial) for trial in found if trial.status is None or trial.status.tried]
    rest = {"next_before": found[-1].exp_id} if goes_on and len(found) == _PAGE else {}
    return {"trials": shown, **rest}


def _whole(trial: Trial) -> dict[str, Any]:
    if trial.status is not None and not trial.status.tried:
        raise NotFound("trial", trial.exp_id)
    return {
        **row(trial),
        "hypothesis": trial.hypothesis,
        "notes": trial.notes[:_NOTES],
        "reason": (trial.reason or "")[:_NOTES],
        **feedback_of(trial),
        "wall_ms": trial.wall_ms,
    }


def _lessons(tx: Transaction, context: SessionContext, before: str | int | None) -> dict[str, Any]:
    last = None if before is None else trial_number(before)
    found = list_lessons(tx, context.run_id, before=last, limit=_PAGE)
    shown = [
        {
            "specialist": each.specialist,
            "trial": each.trial,
            "status": each.status,
            "verified": each.verified,
            "lesson": each.text,
        }
        for each in found
    ]
    rest = {"next_before": found[-1].id} if len(found) == _PAGE else {}
    return {"lessons": shown, **rest}


SHORTEST, LONGEST = 20, 1000
_MOST = 5


def write_lesson(context: SessionContext) -> EngineTool:
    async def use(given: Mapping[str, Any]) -> str:
        lesson = inputs.notes(given["lesson"], what="lesson", longest=LONGEST)
        if len(lesson) < SHORTEST:
            raise Misuse(
                f"the lesson {lesson!r} is too short to be one",
                hint=f"write {SHORTEST} to {LONGEST} characters",
            )
        if context.lessons >= _MOST:
            raise Conflict(
                f"this session has written {_MOST} lessons, which is the most", hint="continue without more"
            )
        last = context.trials[-1].number if context.trials else None
        with context.write() as tx:
            add_lesson(tx, context.run_id, context.specialist.name, lesson, trial=last)
        context.lessons += 1
        return tool_answer({"ok": True, "lessons_left_in_this_session": _MOST - context.lessons})

    return EngineTool(
        "write_lesson",
        "Leave a lesson for all specialists of this run: something that you found out and that holds beyond this "
        "one trial. It is shown to sessions that come after yours.",
        form({"lesson": text(f"{SHORTEST} to {LONGEST} characters", longest=2 * LONGEST)}),
        use,
    )


_BOUNDS = Bounds(wall_seconds=30, memory_bytes=1024**3, output_bytes=4 * 1024**2)


def syntax_check(context: SessionContext) -> EngineTool:
    async def use(_given: Mapping[str, Any]) -> str:
        files = await _python_files(context)
        errors = await asyncio.to_thread(_errors, files)
        strays = await asyncio.to_thread(strays_in, context.task, context.workspace)
        answer: dict[str, Any] = {"ok": not (errors or strays), "files_checked": len(files), "errors": errors}
        if strays:
            answer["strays"] = strays
        if context.task.size_limit_bytes is not None:
            size = await asyncio.to_thread(context.task.size_check, context.workspace.path)
            answer["size"] = {
                "verdict": size.verdict,
                "total_bytes": size.total_bytes,
                "limit_bytes": size.limit_bytes,
            }
        return tool_answer(answer)

    return EngineTool(
        "syntax_check",
        "Compile every Python file of the recipe as it is in your workspace, without running it. "
        "Tells what is wrong and where, which files no candidate may have, and the size if that is limited.",
        form(),
        use,
    )


def param_count(context: SessionContext) -> EngineTool:
    async def use(_given: Mapping[str, Any]) -> str:
        return tool_answer(await _counted(await _python_files(context)))

    return EngineTool(
        "param_count",
        "Count the parameters of the recipe's layers (Linear, Embedding, Conv1d to Conv3d) whose sizes are "
        "written down in the source, and the data that is written into it. Nothing is run, so this is an estimate.",
        form(),
        use,
    )


async def _python_files(context: SessionContext) -> dict[str, bytes]:
    return await asyncio.to_thread(read_recipe, context.task, context.workspace.path, ".py")


def _errors(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """What the trial's preflight would find, all of it."""
    found = ((path, compiler.check(path, content)) for path, content in files.items())
    return [
        {"file": path, "line": problem.line, "error": problem.message}
        for path, problem in found
        if problem is not None
    ]


async def _counted(files: Mapping[str, bytes]) -> Any:
    node = Node(Path(parameters.__file__), function="count")
    given = {path: content.decode("latin-1") for path, content in files.items()}
    done = await run(node, stdin=json.dumps(given).encode(), bounds=_BOUNDS)
    if not done.ok:
        raise Misuse(f"the recipe cannot be read as Python: {done.problem}", hint="use syntax_check")
    return done.value


_ALWAYS = (syntax_check, param_count, submit_trial, rebase_to, read_output)
# What reads, or leaves for reading, what other sessions did.
_LINEAGE = (read_lineage, read_snapshot, diff_snapshots, write_lesson)


def tools_for(context: SessionContext) -> tuple[EngineTool, ...]:
    """All tools of this session, the task's own last. Raises `Misuse` when a task calls one like one of ours."""
    makers = (*_ALWAYS, *_LINEAGE) if context.lineage else _ALWAYS
    ours = [make(context) for make in makers]
    theirs = task_tools(context)
    taken = {make.__name__ for make in (*_ALWAYS, *_LINEAGE)}
    for tool in theirs:
        if tool.name in taken:
            raise Misuse(
                f"the task {context.task.name} has a second tool called {tool.name}", hint="rename it"
            )
        taken.add(tool.name)
    return (*ours, *theirs)


def tool_names(task: TaskAdapter, *, lineage: bool) -> tuple[str, ...]:
    """What they are called, for a prompt. Tools that only the adapter makes are described by the task itself."""
    makers = (*_ALWAYS, *_LINEAGE) if lineage else _ALWAYS
    return (*(make.__name__ for make in makers), *(each.name for each in task.tool_commands))
