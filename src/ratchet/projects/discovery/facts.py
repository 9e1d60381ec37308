"""What is known of a repository, as it is kept with its project."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

Argv = tuple[str, ...]

_INSIDE = 'cd -- "$1" && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class StackFindings:
    """A stack, or another place that says how a repository is checked. See `Facts` for the rest."""

    stack: str | None = None
    checks: tuple[ProjectCheck, ...] = ()
    network_checks: tuple[ProjectCheck, ...] = ()
    setup: tuple[Argv, ...] = ()


def inside(directory: str, argv: Argv) -> Argv:
    """A command that works in a directory, for who starts at the top of the repository."""
    return argv if directory == "." else ("sh", "-c", _INSIDE, "sh", directory, *argv)


def unmoved(argv: Argv) -> tuple[str, Argv]:
    """Where a command works, seen from the top of the repository, and what it runs there."""
    if argv[:3] == ("sh", "-c", _INSIDE) and len(argv) > 5:
        return argv[4], argv[5:]
    return ".", argv


def moved_into(directory: str, found: StackFindings) -> StackFindings:
    """The same, for who starts at the top of the repository and not in `directory`."""

    def moved(checks: tuple[ProjectCheck, ...]) -> tuple[ProjectCheck, ...]:
        return tuple(
            replace(check, name=f"{directory}:{check.name}", argv=inside(directory, check.argv))
            for check in checks
        )

    return StackFindings(
        found.stack,
        moved(found.checks),
        moved(found.network_checks),
        tuple(inside(directory, argv) for argv in found.setup),
    )


CheckKind = Literal["test", "lint", "types", "build", "format", "security"]
Provider = Literal["github", "gitlab"]
Source = Literal["files", "engine", "person"]

KINDS: tuple[CheckKind, ...] = get_args(CheckKind)


@dataclass(frozen=True, slots=True)
class ProjectCheck:
    """A command that a change must pass. It runs at the top of the repository, without a shell."""

    name: str
    argv: tuple[str, ...]
    kind: CheckKind
    source: Source = "files"
    needs: str | None = None
    """The Python distribution that brings the program, where a fresh environment may lack it."""

    def as_json(self) -> dict[str, Any]:
        said = {"name": self.name, "argv": list(self.argv), "kind": self.kind, "source": self.source}
        return said | ({} if self.needs is None else {"needs": self.needs})


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """`checks` work without a network once `setup` has run; `network_checks` fetch what they need, and are for CI.

    `setup` are the commands that make a fresh clone ready, `system_packages` what CI installs of the system's own
    besides. `required_checks` are the names that the CI of the
    repository reports for every change. `notes` say what could not be read or told, for a person.
    """

    stack: tuple[str, ...] = ()
    checks: tuple[ProjectCheck, ...] = ()
    network_checks: tuple[ProjectCheck, ...] = ()
    setup: tuple[tuple[str, ...], ...] = ()
    system_packages: tuple[str, ...] = ()
    required_checks: tuple[str, ...] = ()
    ci_provider: Provider | None = None
    notes: tuple[str, ...] = field(default=())

    def of_kind(self, kind: CheckKind) -> tuple[ProjectCheck, ...]:
        """The checks of one kind, those that need a network last."""
        return tuple(check for check in (*self.checks, *self.network_checks) if check.kind == kind)

    def as_json(self) -> dict[str, Any]:
        return {
            "stack": list(self.stack),
            "checks": [check.as_json() for check in self.checks],
            "network_checks": [check.as_json() for check in self.network_checks],
            "setup": [list(argv) for argv in self.setup],
            "system_packages": list(self.system_packages),
            "required_checks": list(self.required_checks),
            "ci_provider": self.ci_provider,
            "notes": list(self.notes),
        }


def read_facts(data: Mapping[str, Any]) -> ProjectFacts:
    """The facts that `as_json` wrote. A person may have changed them: what has no sense is left out."""
    provider = data.get("ci_provider")
    return ProjectFacts(
        stack=_texts(data.get("stack")),
        checks=_checks(data.get("checks")),
        network_checks=_checks(data.get("network_checks")),
        setup=tuple(argv for argv in map(_texts, _items(data.get("setup"))) if argv),
        system_packages=_texts(data.get("system_packages")),
        required_checks=_texts(data.get("required_checks")),
        ci_provider=provider if provider in get_args(Provider) else None,
        notes=_texts(data.get("notes")),
    )


def _checks(data: Any) -> tuple[ProjectCheck, ...]:
    read = (_check(each) for each in _items(data) if isinstance(each, Mapping))
    return tuple(check for check in read if check is not None)


def _check(data: Mapping[str, Any]) -> ProjectCheck | None:
    name, argv, kind, needs = data.get("name"), _texts(data.get("argv")), data.get("kind"), data.get("needs")
    if not isinstance(name, str) or not name or not argv or kind not in KINDS:
        return None
    said = data.get("source")
    source: Source = said if said in ("engine", "person") else "files"
    return ProjectCheck(name, argv, kind, source, needs if isinstance(needs, str) else None)


def _texts(data: Any) -> tuple[str, ...]:
    return tuple(each for each in _items(data) if isinstance(each, str))


def _items(data: Any) -> Iterable[Any]:
    return data if isinstance(data, list | tuple) else ()
