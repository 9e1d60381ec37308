"""Discovery: which stacks a repository has and which checks a change of it must pass. Files first, an engine second."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.projects.discovery.facts import (
        CheckKind,
        ProjectCheck,
        ProjectFacts,
        Provider,
        Source,
        inside,
        read_facts,
        unmoved,
    )
    from ratchet.projects.discovery.stacks import manager_package
    from ratchet.projects.discovery.survey import discover_files, discover_project
    from ratchet.projects.discovery.tree import SourceTree
else:
    __getattr__ = on_demand(__name__)
