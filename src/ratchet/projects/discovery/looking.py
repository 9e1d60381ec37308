"""Looking at the files of a repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ratchet.projects.discovery import compiled, node, python
from ratchet.projects.discovery.ci import look_for_ci, system_packages
from ratchet.projects.discovery.declared import look_for_hooks, look_for_make, look_for_scripts
from ratchet.projects.discovery.facts import KINDS, Check, Facts
from ratchet.projects.discovery.found import Found, moved_into
from ratchet.projects.discovery.provider import find_provider
from ratchet.projects.discovery.required import required_checks
from ratchet.projects.discovery.tree import Tree

_STACKS: tuple[Callable[[Tree], Found | None], ...] = (
    python.look,
    node.look,
    compiled.look_for_go,
    compiled.look_for_rust,
    compiled.look_for_java,
)
_MOST_DIRECTORIES = 50
_MOST_CHECKS = 40


def discover_files(tree: Path, *, origin: str | None = None) -> Facts:
    """What the files of a working tree tell. Reads only regular files inside of it, and only so much of each.

    `origin` is where it was cloned from; it decides the CI provider where no file does.
    """
    top = Tree(tree)
    stacks = _stacks(top)
    scripts, make, hooks = look_for_scripts(top), look_for_make(top), look_for_hooks(top)
    provider = find_provider(top, origin)
    checks, network_checks = _chosen(scripts, make, stacks)
    if not any(check.kind == "test" for check in checks):
        hints = look_for_ci(top)
        stacks += hints
        checks = (*(check for found in hints for check in found.checks), *checks)
    required = required_checks(top, provider)
    return Facts(
        stack=tuple(dict.fromkeys(found.stack for found in stacks if found.stack)),
        checks=checks[:_MOST_CHECKS],
        network_checks=(*network_checks, *hooks.network_checks)[:_MOST_CHECKS],
        setup=scripts.setup or tuple(dict.fromkeys(argv for found in stacks for argv in found.setup)),
        system_packages=system_packages(top),
        required_checks=required,
        ci_provider=provider,
        notes=top.notes,
    )


def _stacks(top: Tree) -> list[Found]:
    """Those of the top, and those of its directories where the top has none of that kind."""
    found = [seen for look in _STACKS if (seen := look(top)) is not None]
    at_top = {each.stack for each in found}
    for name in top.directories()[:_MOST_DIRECTORIES]:
        inside = top.inside(name)
        seen_inside = (look(inside) for look in _STACKS if _is_project(look, inside))
        found += [
            moved_into(name, seen) for seen in seen_inside if seen is not None and seen.stack not in at_top
        ]
    return found


def _is_project(look: Callable[[Tree], Found | None], tree: Tree) -> bool:
    """A directory with a few Python files is part of something else; one with a manifest is a project."""
    return look is not python.look or any(tree.has(name) for name in python.MANIFESTS)


def _chosen(scripts: Found, make: Found, stacks: list[Found]) -> tuple[tuple[Check, ...], tuple[Check, ...]]:
    """For each kind: the script that CI runs, else the target of make, else what the stacks have."""
    checks: list[Check] = []
    network_checks: list[Check] = []
    for kind in KINDS:
        for declared in (scripts, make):
            of_kind = [check for check in declared.checks if check.kind == kind]
            if of_kind:
                checks += of_kind
                break
        else:
            checks += [each for found in stacks for each in found.checks if each.kind == kind]
            network_checks += [each for found in stacks for each in found.network_checks if each.kind == kind]
    return tuple(checks), tuple(network_checks)
