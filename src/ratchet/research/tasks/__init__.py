"""Tasks: reading one from its folder, finding it, beginning one, and keeping a run's own copy."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.tasks.catalog import (
        TaskAnswer,
        find_installed,
        find_task,
        installed_tasks,
        pin_task,
        pinned_task,
        read_in_task,
        scaffold,
        task_hash,
        task_names,
        write_task,
    )
    from ratchet.research.tasks.folder import initial_files
    from ratchet.research.tasks.reader import read_task
    from ratchet.research.tasks.validation import OWN_TOOLS, check_task
else:
    __getattr__ = on_demand(__name__)
