"""Go, Rust and Java: their own tools know what to do."""

from __future__ import annotations

from ratchet.projects.discovery.facts import Check
from ratchet.projects.discovery.found import Found
from ratchet.projects.discovery.tree import Tree

_GOLANGCI = (".golangci.yml", ".golangci.yaml", ".golangci.toml", ".golangci.json")
_GRADLE = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")


def look_for_go(tree: Tree) -> Found | None:
    if not tree.has("go.mod"):
        return None
    lint = Check("go-vet", ("go", "vet", "./..."), "lint")
    if any(tree.has(name) for name in _GOLANGCI):
        lint = Check("golangci-lint", ("golangci-lint", "run"), "lint")
    checks = (
        Check("go-test", ("go", "test", "./..."), "test"),
        lint,
        Check("go-build", ("go", "build", "./..."), "build"),
    )
    return Found("go", checks, (), (("go", "mod", "download"),))


def look_for_rust(tree: Tree) -> Found | None:
    if not tree.has("Cargo.toml"):
        return None
    checks = [
        Check("cargo-test", ("cargo", "test"), "test"),
        Check("cargo-check", ("cargo", "check", "--all-targets"), "types"),
        Check("cargo-build", ("cargo", "build"), "build"),
    ]
    if tree.has("clippy.toml") or tree.has(".clippy.toml"):
        checks.append(Check("clippy", ("cargo", "clippy", "--all-targets"), "lint"))
    if tree.has("rustfmt.toml") or tree.has(".rustfmt.toml"):
        checks.append(Check("rustfmt", ("cargo", "fmt", "--check"), "format"))
    return Found("rust", tuple(checks), (), (("cargo", "fetch"),))


def look_for_java(tree: Tree) -> Found | None:
    if tree.has("pom.xml"):
        # Not by its own path: a wrapper without its executable bit runs all the same.
        program = ("sh", "./mvnw") if tree.has("mvnw") else ("mvn",)
        checks = (
            Check("maven-test", (*program, "--batch-mode", "test"), "test"),
            Check("maven-package", (*program, "--batch-mode", "-DskipTests", "package"), "build"),
        )
        # What tests need is only known when they run: the plugin for them fetches its parts at that time.
        return Found(
            "java", checks, (), ((*program, "--batch-mode", "-Dmaven.test.failure.ignore=true", "package"),)
        )
    if any(tree.has(name) for name in _GRADLE):
        program = ("sh", "./gradlew") if tree.has("gradlew") else ("gradle",)
        checks = (
            Check("gradle-test", (*program, "test"), "test"),
            Check("gradle-assemble", (*program, "assemble"), "build"),
        )
        return Found("java", checks)
    return None
