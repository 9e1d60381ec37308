"""What a specialist is told when a session begins: where the run stands, and what there is to do now."""

from __future__ import annotations

from pathlib import Path

from ratchet.engines.tool_server import Way
from ratchet.kernel import Limits, dollars, exp_id
from ratchet.research.adapter import Specialist, TaskAdapter
from ratchet.research.sessions.recipe import list_recipe

_FILES = 50
_WITH_TOOLS = """\
Choose one change that the history does not rule out, make it in your workspace, check it with `syntax_check` and hand \
it in with `submit_trial`. One trial that was measured is a complete session."""
_WITHOUT_TOOLS = """\
Choose one change, make it in your workspace, and end with one line `HYPOTHESIS: …` that says what you changed and why \
it should help."""


def user_prompt(
    task: TaskAdapter,
    specialist: Specialist,
    *,
    directory: Path,
    parent: int,
    lineage: str,
    limits: Limits | None = None,
    seconds: float | None = None,
    trials_left: int | None = None,
    way: Way = Way.MCP,
) -> str:
    """`lineage` is the view of the run as it stands; `trials_left` are those of the run, the rest is the session's."""
    sections = [
        ("Session", f"You are {specialist.name}, and work on {task.name}."),
        ("The run", lineage.strip()),
        ("Your workspace", _workspace(task, directory, parent)),
        ("What is left", "\n".join(_left(task, limits or Limits(), seconds, trials_left, way))),
        ("What to do", _WITHOUT_TOOLS if way is Way.NONE else _WITH_TOOLS),
    ]
    return "\n\n".join(f"# {title}\n\n{text}" for title, text in sections if text) + "\n"


def _workspace(task: TaskAdapter, directory: Path, parent: int) -> str:
    files = list_recipe(task, directory)
    lines = [f"It is your working directory and holds the files of trial {exp_id(parent)}. The recipe:", ""]
    lines += [f"- {each.path} ({each.size} bytes)" for each in files[:_FILES]]
    if len(files) > _FILES:
        lines.append(f"- and {len(files) - _FILES} more files")
    if task.stage_files:
        lines += ["", f"To read, and not to change: {', '.join(sorted(task.stage_files.values()))}."]
    return "\n".join(lines)


def _left(
    task: TaskAdapter, limits: Limits, seconds: float | None, trials_left: int | None, way: Way
) -> list[str]:
    most = 1 if way is Way.NONE else task.trials_per_session
    if trials_left is not None:
        most = min(most, trials_left)
    lines = [f"- trials of this session: {most}"]
    if trials_left is not None:
        lines.append(f"- trials of the run: {trials_left}")
    if seconds is not None:
        lines.append(f"- time of this session, trials included: {seconds / 60:.0f} minutes")
    if limits.tokens is not None:
        lines.append(f"- tokens: {limits.tokens}")
    if limits.cost_usd is not None:
        lines.append(f"- money: {dollars(limits.cost_usd)}")
    return lines
