"""Discovery: which stacks a repository has and which checks a change of it must pass. Files first, an engine second."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.projects.discovery.facts import (
        Check,
        CheckKind,
        Facts,
        Provider,
        Source,
        inside,
        read_facts,
        unmoved,
    )
    from ratchet.projects.discovery.stacks import manager_package
    from ratchet.projects.discovery.survey import discover_files, discover_project
    from ratchet.projects.discovery.tree import Tree
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Check",
    "CheckKind",
    "Facts",
    "Provider",
    "Source",
    "Tree",
    "discover_files",
    "discover_project",
    "inside",
    "manager_package",
    "read_facts",
    "unmoved",
]
