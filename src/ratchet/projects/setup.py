"""How a project is set up and checked: what was found, what a person has chosen instead, and how it is shown."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from ratchet.kernel import Misuse, RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.projects import Project, add_facts, get_project
from ratchet.projects.clone import place_of
from ratchet.projects.discovery import read_facts
from ratchet.projects.discovery.facts import KINDS
from ratchet.projects.environments import Environments, missing_packages
from ratchet.projects.stages import CheckCommand, SetupAnswer, SetupEnvironment
from ratchet.runtime import Runtime
from ratchet.workspaces import Repository

Settled = Literal["setup", "checks"]
_NAME = re.compile(r"[\w.:@/ -]{1,80}")
_SHELL = re.compile(r"[|&;<>$`*]")
# Tools that are installed where the set-up did not bring them.
_TOOLS = frozenset({"pytest", "ruff", "mypy", "flake8", "black", "pylint", "isort", "coverage"})
_MOST = 40
_LONGEST = 4000


def keep_found(known: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What was found, without what a person has settled; that is remembered beside it."""
    settled = known.get("settled") or ()
    new = {key: value for key, value in found.items() if key not in settled}
    return {**new, "found": {"setup": found.get("setup"), "checks": found.get("checks")}}


def settle_setup(tx: Transaction, project_id: int, lines: Sequence[str]) -> None:
    """Set the project up by these commands, in this order. Raises `Misuse` for what is no command."""
    _settle(tx, project_id, "setup", [read_command(line) for line in lines])


def settle_checks(tx: Transaction, project_id: int, checks: Sequence[Mapping[str, Any]]) -> None:
    """Have these checks decide: each has a `name`, a `command` and perhaps a `kind`. Raises `Misuse`."""
    names = [str(each.get("name")) for each in checks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Misuse(f"two checks are called {twice!r}", hint="give each a name of its own")
    before = {each["name"]: each for each in get_project(tx, project_id).facts.get("checks") or ()}
    _settle(tx, project_id, "checks", [_check(each, before) for each in checks])


def use_found(tx: Transaction, project_id: int, key: Settled) -> None:
    """Go back to what was found in the repository."""
    facts = get_project(tx, project_id).facts
    settled = [each for each in facts.get("settled") or () if each != key]
    found = (facts.get("found") or {}).get(key)
    add_facts(tx, project_id, {"settled": settled, **({} if found is None else {key: found})})
    tx.event("project.changed", project_id=project_id, message=f"{key}: as found")


def read_command(line: str) -> list[str]:
    """A line as an argv; one that needs a shell gets one."""
    text = line.strip()
    if not text or len(text) > _LONGEST or not text.isprintable():
        raise Misuse(f"{line[:80]!r} is not a command", hint="write it as one line, as in a terminal")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Misuse(f"{text[:80]!r} cannot be read: {error}", hint="close its quotes") from None
    unquoted = re.sub(r"'[^']*'|\"[^\"$`]*\"", "", text)
    return ["sh", "-c", text] if _SHELL.search(unquoted) or re.match(r"\w+=", text) else words


def written(argv: Iterable[str]) -> str:
    """An argv as the line that it was read from."""
    words = list(argv)
    return words[2] if words[:2] == ["sh", "-c"] and len(words) == 3 else shlex.join(words)


def _settle(tx: Transaction, project_id: int, key: Settled, value: list[Any]) -> None:
    if len(value) > _MOST:
        raise Misuse(f"{len(value)} {key} are too many, at most {_MOST}")
    facts = get_project(tx, project_id).facts
    settled = sorted({*(facts.get("settled") or ()), key})
    found = facts.get("found") or {"setup": facts.get("setup"), "checks": facts.get("checks")}
    add_facts(tx, project_id, {key: value, "settled": settled, "found": found})
    tx.event("project.changed", project_id=project_id, message=key)


def _check(given: Mapping[str, Any], before: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    name, command = given.get("name"), given.get("command")
    same = before.get(str(name), {})
    kind = given.get("kind") or same.get("kind") or "test"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Misuse(f"{str(name)[:80]!r} cannot be the name of a check", hint="use letters, digits, - and .")
    if kind not in KINDS:
        raise Misuse(f"{str(kind)[:80]!r} is not a kind of check", hint=f"use one of: {', '.join(KINDS)}")
    argv = read_command(str(command or ""))
    if list(same.get("argv") or ()) == argv and kind == same.get("kind"):
        return dict(same)
    return {"name": name, "argv": argv, "kind": kind, "source": "person", **_needed(argv)}


def _needed(argv: Sequence[str]) -> dict[str, str]:
    """`python3 -m TOOL` needs the distribution of that tool."""
    if len(argv) > 2 and re.fullmatch(r"python[\d.]*", argv[0]) and argv[1] == "-m" and argv[2] in _TOOLS:
        return {"needs": argv[2]}
    return {}


def setup_view(runtime: Runtime, project: Project) -> SetupAnswer:
    """`environment` is null when none is needed or none is made yet; `state` says which."""
    facts = read_facts(project.facts)
    settled = project.facts.get("settled") or ()
    state, made, lines, problem = _environment(runtime, project)
    lacking = missing_packages(facts.system_packages)
    return SetupAnswer(
        stack=list(facts.stack),
        commands=[written(argv) for argv in facts.setup],
        settled="setup" in settled,
        needs=[check.needs for check in facts.checks if check.needs],
        runs=lines,
        state=state,
        problem=problem,
        environment=made,
        checks=[CheckCommand(check.name, written(check.argv), check.kind) for check in facts.checks],
        checks_settled="checks" in settled,
        notes=[*facts.notes, *([] if lacking is None else [lacking])],
    )


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
) -> tuple[str, SetupEnvironment | None, list[str], str | None]:
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
    made = SetupEnvironment(
        directory=str(found.directory),
        python=found.python,
        seconds=found.seconds,
        commands=[written(argv) for argv in found.commands],
        directories=list(found.directories),
        notes=list(found.notes),
    )
    return "made", made, list(recipe.lines), None
