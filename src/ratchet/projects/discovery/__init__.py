"""Discovery: which stacks a repository has and which checks a change of it must pass. Files first, an engine second."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.projects.discovery.asking import discover_project
    from ratchet.projects.discovery.facts import Check, CheckKind, Facts, Provider, Source, read_facts
    from ratchet.projects.discovery.looking import discover_files
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Check",
    "CheckKind",
    "Facts",
    "Provider",
    "Source",
    "discover_files",
    "discover_project",
    "read_facts",
]
