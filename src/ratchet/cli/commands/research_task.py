"""`ratchet research new`, `check` and `tasks`"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ratchet.cli.command import command
from ratchet.cli.output import confirm, print_document, show_list
from ratchet.cli.session import configure_logs
from ratchet.cli.words import one_line
from ratchet.operations import record
from ratchet.research import tasks

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.research.checker import TaskCheck

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}
_WIDTH = 58
_INDENT = 20


@command(
    examples=["ratchet research new tides", "ratchet research new tides --directory experiments"],
    see=["research check", "research run"],
)
@click.argument("name", metavar="NAME", help="What to call the task and its folder.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Where the folder is made; here if not given.",
)
def new(session: CliSession, name: str, directory: Path) -> None:
    """Make a folder with a small task to begin with.

    It can be improved as it is. Its task.toml explains every key.
    """
    folder = tasks.scaffold(name, directory)
    confirm(
        session,
        {"task": name, "path": str(folder)},
        f"Made {folder}.\n\nNext: ratchet research check {_named(folder)} --attack",
    )


@command(
    "tasks",
    examples=["ratchet research tasks", "ratchet research tasks --json | jq -r '.[].name'"],
    see=["research run", "research new"],
)
def tasks_(session: CliSession) -> None:
    """List the tasks that are installed.

    These are Ratchet's own and those of other packages. A folder of your own needs no installation: name its path.
    """
    show_list(
        session,
        tasks.installed_tasks(),
        {
            "task": lambda task: task.name,
            "kind": lambda task: task.kind,
            "score": lambda task: task.score_field,
            "better": lambda task: task.direction,
            "known best": lambda task: task.known_best or None,
            "description": lambda task: task.problem or task.description,
        },
        record=record,
        empty="No task is installed. `ratchet research new NAME` makes one.",
    )


@command(
    "check",
    examples=[
        "ratchet research check ./tides",
        "ratchet research check ./tides --attack",
        "ratchet research check circle_packing --json",
    ],
    see=["research run"],
)
@click.argument("task", metavar="TASK", help="A folder with a task.toml, or the name of an installed task.")
@click.option("--variant", metavar="VARIANT", help="A variant of the task; the task itself if not given.")
@click.option(
    "--attack", is_flag=True, help="Also try hostile recipes, broken evaluators and failing machines."
)
def check_(session: CliSession, task: str, variant: str | None, attack: bool) -> int:
    """Check a task before money is spent on it.

    Its baseline is measured, its prompts are built, its tools are asked. Nothing of it is changed. Exits with 1 if
    something failed.
    """
    loaded = session.load()
    configure_logs(loaded)
    report = (lambda _finding: None) if session.json else _print
    # Loaded here: it is made of everything that a run is made of.
    import asyncio

    from ratchet.research.checker import Grade, check

    found = asyncio.run(check(task, variant, attack=attack, real_home=loaded.home, report=report))
    counts = Counter(finding.grade for finding in found)
    if session.json:
        print_document(
            {
                "ok": not counts[Grade.FAILED],
                "counts": {grade: counts[grade] for grade in Grade},
                "seconds": round(sum(finding.seconds for finding in found), 3),
                "findings": [finding.to_dict() for finding in found],
            }
        )
    else:
        click.echo(
            f"\n{counts[Grade.OK]} ok, {counts[Grade.WARNING]} warnings, {counts[Grade.FAILED]} failed"
        )
    return 1 if counts[Grade.FAILED] else 0


def _print(finding: TaskCheck) -> None:
    """A row as soon as it is known."""
    grade = click.style(f"{finding.grade:8}", fg=_COLOURS[finding.grade])
    what = f"{finding.part}: {finding.what}"
    click.echo(f"{grade} {finding.seconds:6.1f} s  {what:{_WIDTH}}  {one_line(finding.detail)}")
    if finding.hint:
        click.echo(f"{'':{_INDENT}}to fix: {one_line(finding.hint)}")


def _named(folder: Path) -> str:
    """The folder as a person would name it: what has no slash could also be an installed task."""
    return str(folder) if "/" in str(folder) else f"./{folder}"
