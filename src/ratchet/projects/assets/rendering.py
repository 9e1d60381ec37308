"""The text of each asset for one repository."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from ratchet.projects.discovery import CheckKind, Facts
from ratchet.projects.discovery.declared import SCRIPTS
from ratchet.projects.discovery.generated import NOTHING, seal

JOBS: dict[str, tuple[CheckKind, ...]] = {
    "lint": ("lint", "format", "security"),
    "typecheck": ("types",),
    "test": ("test",),
    "build": ("build",),
}
"""The jobs of CI, each with a script of its name, and the kinds of checks that it runs."""

GITHUB_FILE = ".github/workflows/ci.yml"
GITLAB_FILE = ".gitlab-ci.yml"

_IMAGES = {
    "python": "python:3.12",
    "node": "node:22",
    "go": "golang:1",
    "rust": "rust:1",
    "java": "maven:3-eclipse-temurin-21",
}
_MANAGERS = ("pnpm", "yarn", "bun")


def script_path(name: str) -> str:
    return f"{SCRIPTS}/{name}.sh"


def render(facts: Facts, provider: str | None) -> dict[str, str]:
    """Every asset by its path. A script that the repository has of its own is not among them."""
    scripts = {"bootstrap": _bootstrap(facts), "report": _template("report.sh")}
    scripts |= {name: _check_script(name, kinds, facts) for name, kinds in JOBS.items()}
    texts = {
        script_path(name): seal(text)
        for name, text in scripts.items()
        if not _is_own(facts, script_path(name))
    }
    if provider == "github":
        texts[GITHUB_FILE] = seal(_filled("github-ci.yml", jobs=_jobs("github-job.yml")))
    elif provider == "gitlab":
        texts[GITLAB_FILE] = seal(_gitlab(facts))
    return texts


def required_jobs(facts: Facts) -> tuple[str, ...]:
    """The jobs that have something to run."""
    return tuple(name for name, kinds in JOBS.items() if any(facts.of_kind(kind) for kind in kinds))


def _is_own(facts: Facts, path: str) -> bool:
    own = ("bash", path)
    return own in facts.setup or any(check.argv == own for check in facts.checks)


def _check_script(name: str, kinds: Iterable[CheckKind], facts: Facts) -> str:
    checks = [check for kind in kinds for check in facts.of_kind(kind)]
    if not checks:
        return _filled("skip.sh", nothing=NOTHING, script=name)
    lines = (shlex.join(["check", check.name, *check.argv]) for check in checks)
    return _filled("check.sh", script=name, commands="\n".join(lines))


def _bootstrap(facts: Facts) -> str:
    """The set-up of the stacks, then the tools of checks that it did not bring."""
    needed = sorted({check.needs for check in (*facts.checks, *facts.network_checks) if check.needs})
    lines = []
    if needed or any(_is_python(argv) for argv in facts.setup):
        lines.append(_template("python.sh"))
    managers = [name for name in _MANAGERS if any(name in argv for argv in facts.setup)]
    if managers:
        lines.append(_template("node.sh"))
    lines += [shlex.join(["need_manager", name]) for name in managers]
    lines += [shlex.join(["run", *argv]) for argv in facts.setup]
    lines += [shlex.join(["need", name, name.replace("-", "_")]) for name in needed]
    return _filled("bootstrap.sh", commands="\n".join(lines) or "printf 'nothing to set up\\n'")


def _is_python(argv: tuple[str, ...]) -> bool:
    return any(word in argv for word in ("python3", "uv", "poetry", "pipenv"))


def _gitlab(facts: Facts) -> str:
    stacks = [stack for stack in facts.stack if stack in _IMAGES]
    image = _IMAGES[stacks[0]] if stacks else "buildpack-deps:stable"
    note = "An image with bash, curl and what the checks need."
    if len(stacks) > 1:
        note = f"Name an image that has all of {', '.join(stacks)}; this one has {stacks[0]}."
    return _filled("gitlab-ci.yml", image=image, image_note=note, jobs=_jobs("gitlab-job.yml"))


def _jobs(template: str) -> str:
    return "\n".join(_filled(template, script=name) for name in JOBS).rstrip("\n")


def _filled(template: str, **words: str) -> str:
    return _template(template) % words


@cache
def _template(name: str) -> str:
    return files("ratchet.projects.assets").joinpath("templates", name).read_text(encoding="utf-8")
