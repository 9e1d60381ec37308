"""Which checks decide about a change, and what the change does to them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.projects.discovery.facts import read_facts
from ratchet.protocols.qa.check_files import CHECKS, SCRIPTS, find_scripts, is_ci, is_configuration, is_test
from ratchet.protocols.qa.findings import Finding, Severity
from ratchet.workspaces import Change, Repository


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """`scripts` are changes of what is run, which is put back; `configuration` are changes of what steers it."""

    checks: tuple[Check, ...]
    scripts: tuple[Change, ...] = ()
    configuration: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()


class UnknownCheck(ValueError):
    """The project's facts name a check that cannot be understood. It would be left out silently otherwise."""


def plan_checks(repository: Repository, base: str, commit: str, facts: Mapping[str, Any]) -> CheckPlan:
    """The checks that the project's facts name, else the scripts for CI. Raises `UnknownCheck`.

    Scripts that only the change has are run as well: they make it no easier to pass.
    """
    files = repository.list_files(base)
    checks = tuple(_named(facts))
    read = functools.partial(repository.read_file, base)
    changes = repository.changes(base, commit)
    if not checks:
        there = {*files, *(each.path for each in changes if each.after is not None)}
        checks = tuple(_scripts(there))
    scripts = find_scripts(files, read, [check.argv for check in checks])
    edited = tuple(each for each in changes if each.path in scripts)
    steering = tuple(each for each in changes if is_configuration(each.path) and each.path not in scripts)
    return CheckPlan(checks, edited, steering, tuple(_findings(changes, edited)))


def closed_files(repository: Repository, base: str, facts: Mapping[str, Any]) -> frozenset[str]:
    """The scripts of the base that decide about changes. Raises `UnknownCheck`."""
    read = functools.partial(repository.read_file, base)
    return find_scripts(repository.list_files(base), read, [check.argv for check in _named(facts)])


def _named(facts: Mapping[str, Any]) -> Iterator[Check]:
    known = read_facts(facts).checks
    if len(known) != len(facts.get("checks") or ()):
        raise UnknownCheck("one of the checks in the project's facts cannot be understood")
    for check in known:
        yield Check(check.name, check.argv)


def _scripts(files: set[str]) -> Iterator[Check]:
    for name in CHECKS:
        path = f"{SCRIPTS}{name}.sh"
        if path in files:
            yield Check(name, ("bash", path))


def _findings(changes: Sequence[Change], edited: Sequence[Change]) -> Iterator[Finding]:
    for change in edited:
        told = f"decides about changes and was {change.status}; the base's version was run"
        yield Finding("check-script", told, change.path, severity=Severity.MAJOR)
    for change in changes:
        if is_ci(change.path):
            told = f"tells CI what to run and was {change.status}"
            yield Finding("ci-configuration", told, change.path, severity=Severity.MAJOR)
        if is_test(change.path) and change.after is None:
            yield Finding("test-removed", "is a test and was removed", change.path, severity=Severity.MAJOR)
