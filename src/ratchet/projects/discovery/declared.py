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
    for name in _MAKEFILES:
        text = tree.text(name)
        if text is not None:
            targets = {target for rule in _RULE.findall(text) for target in rule.split()}
            targets -= _fetching(text)
            checks: dict[CheckKind, Check] = {}
            for target, kind in _TARGETS.items():
                if target in targets:
                    checks.setdefault(kind, Check(f"make-{target}", ("make", target), kind))
            return Found(None, tuple(checks.values()))
    return Found()


def _fetching(text: str) -> set[str]:
    """Targets whose recipe installs or fetches something, which a check cannot: it has no network."""
    found: set[str] = set()
    current: list[str] = []
    for line in text.splitlines():
        rule = _RULE.match(line)
        if rule is not None:
            current = rule[1].split()
        elif line.startswith("\t") and FETCHES.search(line):
            found.update(current)
    return found


def look_for_hooks(tree: Tree) -> Found:
    """pre-commit fetches its hooks, so it is for CI."""
    if not tree.has(".pre-commit-config.yaml"):
        return Found()
    argv = ("python3", "-m", "pre_commit", "run", "--all-files")
    return Found(None, (), (Check("pre-commit", argv, "lint", needs="pre-commit"),))
