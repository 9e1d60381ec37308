"""Which tools a session is given."""

from __future__ import annotations

from ratchet.engines import Tool
from ratchet.kernel import Misuse
from ratchet.research.adapter import TaskAdapter
from ratchet.research.sessions.sitting import Sitting
from ratchet.research.sessions.tools.checking import param_count, syntax_check
from ratchet.research.sessions.tools.lessons import write_lesson
from ratchet.research.sessions.tools.lineage import read_lineage
from ratchet.research.sessions.tools.own import task_tools
from ratchet.research.sessions.tools.reading import read_output
from ratchet.research.sessions.tools.rebasing import rebase_to
from ratchet.research.sessions.tools.snapshots import diff_snapshots, read_snapshot
from ratchet.research.sessions.tools.submitting import submit_trial

_ALWAYS = (syntax_check, param_count, submit_trial, rebase_to, read_output)
# What reads, or leaves for reading, what other sessions did.
_LINEAGE = (read_lineage, read_snapshot, diff_snapshots, write_lesson)


def tools_for(sitting: Sitting) -> tuple[Tool, ...]:
    """All tools of this session, the task's own last. Raises `Misuse` when a task calls one like one of ours."""
    makers = (*_ALWAYS, *_LINEAGE) if sitting.lineage else _ALWAYS
    ours = [make(sitting) for make in makers]
    theirs = task_tools(sitting)
    taken = {make.__name__ for make in (*_ALWAYS, *_LINEAGE)}
    for tool in theirs:
        if tool.name in taken:
            raise Misuse(
                f"the task {sitting.task.name} has a second tool called {tool.name}", hint="rename it"
            )
        taken.add(tool.name)
    return (*ours, *theirs)


def tool_names(task: TaskAdapter, *, lineage: bool) -> tuple[str, ...]:
    """What they are called, for a prompt. Tools that only the adapter makes are described by the task itself."""
    makers = (*_ALWAYS, *_LINEAGE) if lineage else _ALWAYS
    return (*(make.__name__ for make in makers), *(each.name for each in task.tool_commands))
