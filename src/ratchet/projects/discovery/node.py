"""Node: the scripts of package.json, run by the package manager whose lock file is there."""

from __future__ import annotations

import re

from ratchet.projects.discovery.facts import Check, CheckKind
from ratchet.projects.discovery.found import Argv, Found
from ratchet.projects.discovery.tree import Tree, table

# For each kind, the first of these scripts that exists.
_SCRIPTS: dict[CheckKind, tuple[str, ...]] = {
    "test": ("test:ci", "test"),
    "lint": ("lint:ci", "lint"),
    "types": ("typecheck", "type-check", "check-types", "types", "tsc"),
    "format": ("format:check", "check-format", "prettier:check"),
    "build": ("build",),
    "security": ("security",),
}
# What `npm init` writes: it always fails.
_NO_TEST = "no test specified"
_LOCKS = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
    "package-lock.json": "npm",
    "npm-shrinkwrap.json": "npm",
}


def look(tree: Tree) -> Found | None:
    if not tree.has("package.json"):
        return None
    package = tree.json("package.json")
    program, is_locked = _program(tree, package.get("packageManager"))
    checks = []
    scripts = {name: text for name, text in table(package, "scripts").items() if isinstance(text, str)}
    for kind, names in _SCRIPTS.items():
        name = next((name for name in names if name in scripts and _NO_TEST not in scripts[name]), None)
        if name is not None:
            checks.append(Check(f"{program}-{name}", (program, "run", name), kind))
    if not any(check.kind == "types" for check in checks) and _has_typescript(tree, package):
        checks.append(Check("tsc", ("npx", "--no-install", "tsc", "--noEmit"), "types"))
    return Found("node", tuple(checks), (), _setup(tree, program, is_locked))


def _program(tree: Tree, named: object) -> tuple[str, bool]:
    """The package manager, and whether its lock file is there. A lock file says more than a wish."""
    for lock, program in _LOCKS.items():
        if tree.has(lock):
            return program, True
    wished = re.match("(npm|pnpm|yarn|bun)@", named) if isinstance(named, str) else None
    return (wished[1] if wished else "npm"), False


def _has_typescript(tree: Tree, package: dict[str, object]) -> bool:
    return tree.has("tsconfig.json") and any(
        "typescript" in table(package, name) for name in ("dependencies", "devDependencies")
    )


def _setup(tree: Tree, program: str, is_locked: bool) -> tuple[Argv, ...]:
    if not is_locked:
        return ((program, "install"),)
    match program:
        case "npm":
            return (("npm", "ci"),)
        case "yarn":
            return (("yarn", "install", "--immutable" if tree.has(".yarnrc.yml") else "--frozen-lockfile"),)
        case _:
            return ((program, "install", "--frozen-lockfile"),)
