"""What a repository itself says of its checks: its CI scripts and its Makefile. They count more than any guess."""

from __future__ import annotations

import re

from ratchet.projects.discovery.facts import Check, CheckKind
from ratchet.projects.discovery.found import Found
from ratchet.projects.discovery.generated import is_untouched
from ratchet.projects.discovery.tree import Tree

SCRIPTS = "scripts/ci"
SCRIPT_KINDS: dict[str, CheckKind] = {
    "test": "test",
    "lint": "lint",
    "typecheck": "types",
    "types": "types",
    "build": "build",
    "format": "format",
    "security": "security",
}
_TARGETS: dict[str, CheckKind] = {
    "test": "test",
    "tests": "test",
    "check": "test",
    "lint": "lint",
    "typecheck": "types",
    "type-check": "types",
    "types": "types",
    "build": "build",
    "format-check": "format",
    "security": "security",
}
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
FETCHES = re.compile(
    r"\b(?:pip3?|npm|pnpm|yarn|poetry|pdm|uv|bundle|apt(?:-get)?) (?:install|add|ci|sync)\b"
    r"|\b(?:npm|pnpm|yarn) audit\b|\b(?:uvx?|pip) pip\b|\bpipx?\b|\b(?:tox|nox|docker|curl|wget|npx)\b"
)
_RULE = re.compile(r"^([A-Za-z0-9_.-]+(?:[ \t]+[A-Za-z0-9_.-]+)*)[ \t]*::?(?!=)", re.MULTILINE)


def look_for_scripts(tree: Tree) -> Found:
    """The scripts in scripts/ci that somebody wrote. One that Ratchet wrote only repeats what was found."""
    checks: dict[CheckKind, Check] = {}
    for name, kind in SCRIPT_KINDS.items():
        path = f"{SCRIPTS}/{name}.sh"
        text = tree.text(path)
        if text is not None and not is_untouched(text):
            checks.setdefault(kind, Check(f"ci-{name}", ("bash", path), kind))
    bootstrap = tree.text(f"{SCRIPTS}/bootstrap.sh")
    ready = bootstrap is not None and not is_untouched(bootstrap)
    return Found(None, tuple(checks.values()), (), (("bash", f"{SCRIPTS}/bootstrap.sh"),) if ready else ())


def look_for_make(tree: Tree) -> Found:
    """The usual targets of a Makefile, as make itself would choose the file."""
    checks: dict[CheckKind, Check] = {}
    for target, lines in recipes(makefile(tree) or "").items():
        kind = _TARGETS.get(target)
        # What installs or fetches something cannot be a check: that has no network.
        if kind is not None and not any(map(FETCHES.search, lines)):
            checks.setdefault(kind, Check(f"make-{target}", ("make", target), kind))
    return Found(None, tuple(checks.values()))


def makefile(tree: Tree) -> str | None:
    return next((text for name in _MAKEFILES if (text := tree.text(name)) is not None), None)


def recipes(text: str) -> dict[str, list[str]]:
    """The targets of a Makefile, those that are usual first, each with the lines of its recipe."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        rule = _RULE.match(line)
        if rule is not None:
            current = rule[1].split()
            for target in current:
                found.setdefault(target, [])
        elif line.startswith("\t"):
            for target in current:
                found[target].append(line[1:])
    return {target: found[target] for target in (*(each for each in _TARGETS if each in found), *found)}


def look_for_hooks(tree: Tree) -> Found:
    """pre-commit fetches its hooks, so it is for CI."""
    if not tree.has(".pre-commit-config.yaml"):
        return Found()
    argv = ("python3", "-m", "pre_commit", "run", "--all-files")
    return Found(None, (), (Check("pre-commit", argv, "lint", needs="pre-commit"),))
