"""Node, Go, Rust and Java: their own tools know what to do."""

from __future__ import annotations

import re

from ratchet.projects.discovery.ci import FETCHES
from ratchet.projects.discovery.facts import Argv, CheckKind, ProjectCheck, StackFindings
from ratchet.projects.discovery.tree import SourceTree, table

_GOLANGCI = (".golangci.yml", ".golangci.yaml", ".golangci.toml", ".golangci.json")
_GRADLE = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")


def look_for_go(tree: SourceTree) -> StackFindings | None:
    if not tree.has("go.mod"):
        return None
    lint = ProjectCheck("go-vet", ("go", "vet", "./..."), "lint")
    if any(tree.has(name) for name in _GOLANGCI):
        lint = ProjectCheck("golangci-lint", ("golangci-lint", "run"), "lint")
    checks = (
        ProjectCheck("go-test", ("go", "test", "./..."), "test"),
        lint,
        ProjectCheck("go-build", ("go", "build", "./..."), "build"),
    )
    return StackFindings("go", checks, (), (("go", "mod", "download"),))


def look_for_rust(tree: SourceTree) -> StackFindings | None:
    if not tree.has("Cargo.toml"):
        return None
    checks = [
        ProjectCheck("cargo-test", ("cargo", "test"), "test"),
        ProjectCheck("cargo-check", ("cargo", "check", "--all-targets"), "types"),
        ProjectCheck("cargo-build", ("cargo", "build"), "build"),
    ]
    if tree.has("clippy.toml") or tree.has(".clippy.toml"):
        checks.append(ProjectCheck("clippy", ("cargo", "clippy", "--all-targets"), "lint"))
    if tree.has("rustfmt.toml") or tree.has(".rustfmt.toml"):
        checks.append(ProjectCheck("rustfmt", ("cargo", "fmt", "--check"), "format"))
    return StackFindings("rust", tuple(checks), (), (("cargo", "fetch"),))


def look_for_java(tree: SourceTree) -> StackFindings | None:
    if tree.has("pom.xml"):
        # Not by its own path: a wrapper without its executable bit runs all the same.
        program = ("sh", "./mvnw") if tree.has("mvnw") else ("mvn",)
        checks = (
            ProjectCheck("maven-test", (*program, "--batch-mode", "test"), "test"),
            ProjectCheck("maven-package", (*program, "--batch-mode", "-DskipTests", "package"), "build"),
        )
        # What tests need is only known when they run: the plugin for them fetches its parts at that time.
        return StackFindings(
            "java", checks, (), ((*program, "--batch-mode", "-Dmaven.test.failure.ignore=true", "package"),)
        )
    if any(tree.has(name) for name in _GRADLE):
        program = ("sh", "./gradlew") if tree.has("gradlew") else ("gradle",)
        checks = (
            ProjectCheck("gradle-test", (*program, "test"), "test"),
            ProjectCheck("gradle-assemble", (*program, "assemble"), "build"),
        )
        return StackFindings("java", checks)
    return None


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
_BUILDS = re.compile(r"\b(?:build|compile|tsc|tsup|babel|rollup|webpack|esbuild|vite)\b")
_NAMED = re.compile(r"(npm|pnpm|yarn|bun)@(\d[\w.-]*)")
_BERRY = "@yarnpkg/cli-dist"
# The newest pnpm that still reads a lock file of this version.
_PNPM_LOCKS = {"5": "pnpm@7", "6": "pnpm@8"}


def look_for_node(tree: SourceTree) -> StackFindings | None:
    if not tree.has("package.json"):
        return None
    package = tree.json("package.json")
    program, is_locked = _program(tree, package.get("packageManager"))
    checks = []
    scripts = {name: text for name, text in table(package, "scripts").items() if isinstance(text, str)}
    for kind, names in _SCRIPTS.items():
        name = next((name for name in names if name in scripts and _NO_TEST not in scripts[name]), None)
        if name is not None:
            checks.append(ProjectCheck(f"{program}-{name}", _run(program, name, scripts), kind))
    if not any(check.kind == "types" for check in checks) and _has_typescript(tree, package):
        checks.append(ProjectCheck("tsc", ("npx", "--no-install", "tsc", "--noEmit"), "types"))
    return StackFindings("node", tuple(checks), (), _setup(tree, program, is_locked))


def _run(program: str, name: str, scripts: dict[str, str]) -> Argv:
    """How a script is run without the network, on the files as they are.

    What an installation builds is built again before tests, or they would see the base and not the change.
    """
    around = (scripts.get(f"{when}{name}", "") for when in ("pre", "post"))
    alone = ("--ignore-scripts",) if program == "npm" and any(map(FETCHES.search, around)) else ()
    if name.startswith("test") and _BUILDS.search(scripts.get("prepare", "")):
        return ("sh", "-c", f"{program} run prepare && exec {' '.join([program, 'run', name, *alone])}")
    return (program, "run", name, *alone)


def _program(tree: SourceTree, named: object) -> tuple[str, bool]:
    """The package manager, and whether its lock file is there. A lock file says more than a wish."""
    for lock, program in _LOCKS.items():
        if tree.has(lock):
            return program, True
    wished = _NAMED.match(named) if isinstance(named, str) else None
    return (wished[1] if wished else "npm"), False


def _has_typescript(tree: SourceTree, package: dict[str, object]) -> bool:
    return tree.has("tsconfig.json") and any(
        "typescript" in table(package, name) for name in ("dependencies", "devDependencies")
    )


def _setup(tree: SourceTree, program: str, is_locked: bool) -> tuple[Argv, ...]:
    if not is_locked:
        return ((program, "install"),)
    match program:
        case "npm":
            return (("npm", "ci"),)
        case "yarn":
            is_berry = manager_package(program, tree).startswith(_BERRY)
            return (("yarn", "install", "--immutable" if is_berry else "--frozen-lockfile"),)
        case _:
            return ((program, "install", "--frozen-lockfile"),)


def manager_package(program: str, tree: SourceTree) -> str:
    """What npm is asked for to get the manager as the project wants it.

    What package.json names counts most; then the form of the lock file, which another major version may not read.
    """
    named = tree.json("package.json").get("packageManager")
    wished = _NAMED.match(named) if isinstance(named, str) else None
    if wished is not None and wished[1] == program:
        is_berry = program == "yarn" and not wished[2].startswith(("0.", "1."))
        return f"{_BERRY if is_berry else program}@{wished[2]}"
    if program == "yarn":
        is_berry = tree.has(".yarnrc.yml") or "\n__metadata:" in tree.start("yarn.lock")
        return _BERRY if is_berry else "yarn@1"
    version = re.match(r"lockfileVersion: ['\"]?(\d+)", tree.start("pnpm-lock.yaml"))
    return _PNPM_LOCKS.get(version[1], program) if version and program == "pnpm" else program
