"""How a project is set up and checked, for people: the commands, the environment that they made, and the checks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ratchet.kernel import RatchetError
from ratchet.ledger.projects import Project
from ratchet.projects.clone import place_of
from ratchet.projects.discovery import read_facts
from ratchet.projects.environments import Environments, missing_packages
from ratchet.projects.settled import written
from ratchet.runtime import Runtime
from ratchet.workspaces import Repository


def setup_view(runtime: Runtime, project: Project) -> dict[str, Any]:
    """`environment` is null when none is needed or none is made yet; `state` says which."""
    facts = read_facts(project.facts)
    settled = project.facts.get("settled") or ()
    state, made, lines, problem = _environment(runtime, project)
    lacking = missing_packages(facts.system_packages)
    return {
        "stack": list(facts.stack),
        "commands": [written(argv) for argv in facts.setup],
        "settled": "setup" in settled,
        "needs": [check.needs for check in facts.checks if check.needs],
        "runs": lines,
        "state": state,
        "problem": problem,
        "environment": made,
        "checks": [
            {"name": check.name, "command": written(check.argv), "kind": check.kind} for check in facts.checks
        ],
        "checks_settled": "checks" in settled,
        "notes": [*facts.notes, *([] if lacking is None else [lacking])],
    }


@contextlib.contextmanager
def environments_here(runtime: Runtime, project: Project, **more: Any) -> Iterator[Environments]:
    """The environments of a project whose repository is on this machine. Raises what opening it raises."""
    with Repository.open(place_of(runtime, project)) as repository:
        yield Environments(runtime.home, repository, project.facts, runtime.settings.projects, **more)


def base_of(environments: Environments, project: Project) -> str:
    """The newest commit of the base branch that is known here. Raises `NotFound`."""
    repository = environments.repository
    for ref in (f"refs/remotes/origin/{project.base_branch}", f"refs/heads/{project.base_branch}"):
        commit = repository.ref(ref)
        if commit is not None:
            return commit
    return repository.resolve("HEAD")


def _environment(
    runtime: Runtime, project: Project
) -> tuple[str, dict[str, Any] | None, list[str], str | None]:
    try:
        with environments_here(runtime, project) as environments:
            base = base_of(environments, project)
            recipe = environments.recipe(base)
            if recipe is None:
                return "not needed", None, [], None
            found = environments.find(base)
    except RatchetError as error:
        return "unknown", None, [], str(error)
    if found is None:
        return "not made yet", None, list(recipe.lines), None
    made = {
        "directory": str(found.directory),
        "python": found.python,
        "seconds": found.seconds,
        "commands": [written(argv) for argv in found.commands],
        "directories": list(found.directories),
        "notes": list(found.notes),
    }
    return "made", made, list(recipe.lines), None
