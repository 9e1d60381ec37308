"""The packages that an export needs, each at one version."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ratchet.runtime import Runtime
from ratchet.tools.call import ToolFailed
from ratchet.tools.environments import environment_for, read_requirements
from ratchet.workflows.exports.carrying import Unfit


async def pinned_packages(sets: Iterable[tuple[str, ...]], runtime: Runtime) -> tuple[str, ...]:
    """One line for each package, sorted. Raises `Unfit` when no one environment can have all of them.

    A requirement that names its version is taken as it is. Any other means the versions in the environment that Ratchet
    made, or makes now, for the tool.
    """
    wanted: dict[str, str] = {}
    for requirements in dict.fromkeys(sets):
        for line in await _pinned(requirements, runtime):
            name = canonicalize_name(Requirement(line).name)
            if wanted.setdefault(name, line) != line:
                raise Unfit(f"needs {line}, and another one {wanted[name]}: one environment cannot have both")
    return tuple(line for _, line in sorted(wanted.items()))


async def _pinned(requirements: tuple[str, ...], runtime: Runtime) -> tuple[str, ...]:
    if not requirements:
        return ()
    try:
        lines = read_requirements(requirements)
        if all(_is_exact(line) for line in lines):
            return lines
        made = await environment_for(lines, runtime.home, runtime.settings.tools)
    except ToolFailed as failed:
        raise Unfit(f"has packages that cannot be pinned: {failed}") from failed
    places = [str(path) for path in made.directory.glob("lib/python*/site-packages")]
    found = {canonicalize_name(each.name): each.version for each in distributions(path=places)}
    return tuple(f"{name}=={version}" for name, version in sorted(found.items()))


def _is_exact(line: str) -> bool:
    specifiers = list(Requirement(line).specifier)
    return (
        len(specifiers) == 1 and specifiers[0].operator in ("==", "===") and "*" not in specifiers[0].version
    )
