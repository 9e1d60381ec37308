"""Tasks: reading one from its folder, finding it, beginning one, and keeping a run's own copy."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.tasks._scaffold import scaffold
    from ratchet.research.tasks.checking import OWN_TOOLS, check_task
    from ratchet.research.tasks.finding import find_installed, find_task, installed_task, task_names
    from ratchet.research.tasks.initial import initial_files
    from ratchet.research.tasks.pinning import pin_task, pinned_task, task_hash
    from ratchet.research.tasks.reading import read_task
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "OWN_TOOLS",
    "check_task",
    "find_installed",
    "find_task",
    "initial_files",
    "installed_task",
    "pin_task",
    "pinned_task",
    "read_task",
    "scaffold",
    "task_hash",
    "task_names",
]
