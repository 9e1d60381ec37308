"""What one look at a directory came to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ratchet.projects.discovery.facts import Check

Argv = tuple[str, ...]

_INSIDE = 'cd -- "$1" && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class Found:
    """A stack, or another place that says how a repository is checked. See `Facts` for the rest."""

    stack: str | None = None
    checks: tuple[Check, ...] = ()
    network_checks: tuple[Check, ...] = ()
    setup: tuple[Argv, ...] = ()


def inside(directory: str, argv: Argv) -> Argv:
    """A command that works in a directory, for who starts at the top of the repository."""
    return argv if directory == "." else ("sh", "-c", _INSIDE, "sh", directory, *argv)


def unmoved(argv: Argv) -> tuple[str, Argv]:
    """Where a command works, seen from the top of the repository, and what it runs there."""
    if argv[:3] == ("sh", "-c", _INSIDE) and len(argv) > 5:
        return argv[4], argv[5:]
    return ".", argv


def moved_into(directory: str, found: Found) -> Found:
    """The same, for who starts at the top of the repository and not in `directory`."""

    def moved(checks: tuple[Check, ...]) -> tuple[Check, ...]:
        return tuple(
            replace(check, name=f"{directory}:{check.name}", argv=inside(directory, check.argv))
            for check in checks
        )

    return Found(
        found.stack,
        moved(found.checks),
        moved(found.network_checks),
        tuple(inside(directory, argv) for argv in found.setup),
    )
