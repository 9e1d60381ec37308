"""What CI files, a Dockerfile and a Makefile run: hints, for a repository that says nothing better of itself.

Only plain commands are read, without variables, pipes and redirections. Services, caches and actions of others are not.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from ratchet.projects.discovery.declared import makefile, recipes
from ratchet.projects.discovery.facts import Check
from ratchet.projects.discovery.found import Argv, Found, inside
from ratchet.projects.discovery.provider import workflow_files
from ratchet.projects.discovery.tree import Tree, table

_MOST_FILES = 30
_MOST_COMMANDS = 2_000
_MOST_PACKAGES = 50
_TESTS = 3
_GITLAB = ".gitlab-ci.yml"
_DOCKERFILES = ("Dockerfile", ".devcontainer/Dockerfile")
_OPERATORS = re.compile(r"[();<>|&]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=[\w.,:/-]*")
_TESTED = re.compile(r"tests?(?:$|[:_-])")
_TEST_FILE = re.compile(
    r"(?:[\w.-]+/)*(?:run[-_]?)?tests?(?:[-_]\w+)?\.(?:sh|py|js|mjs|cjs|pl|rb)|(?:\./)?run[-_]tests?"
)
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_PLACE = re.compile(r"(?:[\w.-]+/)*[\w.-]+/?")
_STACKS = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun", "npx", "node"), "node"),
    **dict.fromkeys(("python", "python3", "pip", "pip3", "pytest"), "python"),
    **dict.fromkeys(("mvn", "./mvnw", "gradle", "./gradlew"), "java"),
    "go": "go",
    "cargo": "rust",
}
Command = tuple[str, Argv]
"""Where it works, seen from the top, and what it is."""


def look_for_ci(tree: Tree) -> list[Found]:
    """How CI tests the repository, and what it installs for that with a package manager, one for each stack."""
    commands = list(itertools.islice(_commands(tree), _MOST_COMMANDS))
    tests = [(where, argv) for where, each in commands if (argv := _test(tree, where, each)) is not None]
    tests = list(dict.fromkeys(tests))[:_TESTS]
    if not tests:
        return []
    checks = tuple(
        Check(f"ci-test-{number}" if number else "ci-test", inside(where, argv), "test")
        for number, (where, argv) in enumerate(tests)
    )
    setup = [(where, argv) for where, each in commands if (argv := _installation(each)) is not None]
    stacks = [_STACKS.get(argv[0]) for _, argv in (*tests, *setup)]
    first, *others = dict.fromkeys(filter(None, stacks)) or [None]
    found = Found(first, checks, (), tuple(dict.fromkeys(inside(where, argv) for where, argv in setup)))
    return [found, *(Found(each) for each in others)]


def system_packages(tree: Tree) -> tuple[str, ...]:
    """What CI and a Dockerfile install with Debian's package manager."""
    names: dict[str, None] = {}
    for _, argv in itertools.islice(_commands(tree), _MOST_COMMANDS):
        if argv[0] in ("apt-get", "apt") and "install" in argv:
            words = argv[argv.index("install") + 1 :]
            names |= dict.fromkeys(word for word in words if _PACKAGE.fullmatch(word))
    return tuple(names)[:_MOST_PACKAGES]


def _commands(tree: Tree) -> Iterator[Command]:
    for path in workflow_files(tree)[:_MOST_FILES]:
        workflow = tree.yaml(path)
        for job in table(workflow, "jobs").values():
            usual = _where(table(job, "defaults", "run")) or _where(table(workflow, "defaults", "run"))
            for step in _list(table(job).get("steps")):
                yield from _plain(table(step).get("run"), _where(table(step)) or usual or ".")
    gitlab = tree.yaml(_GITLAB)
    for job in (gitlab, table(gitlab, "default"), *gitlab.values()):
        for name in ("before_script", "script"):
            said = table(job).get(name)
            yield from _plain("\n".join(map(str, _list(said))) if isinstance(said, list) else said, ".")
    for path in _DOCKERFILES:
        text = re.sub(r"\\\n", " ", tree.text(path) or "")
        yield from _plain("\n".join(re.findall(r"^\s*RUN\s+(?:--\S+\s+)*(.+)$", text, re.MULTILINE)), ".")
    lines = recipes(makefile(tree) or "")
    yield from _plain("\n".join((*lines.get("test", ()), *lines.get("check", ()))), ".")


def _where(said: dict[str, Any]) -> str | None:
    place = said.get("working-directory")
    fits = isinstance(place, str) and _PLACE.fullmatch(place.removeprefix("./")) and ".." not in place
    return place.removeprefix("./").rstrip("/") if fits and isinstance(place, str) else None


def _plain(script: Any, where: str) -> Iterator[Command]:
    """The commands of a script that need no shell. `cd` is followed to the end of its line."""
    if not isinstance(script, str):
        return
    for line in re.sub(r"\\\n", " ", script).splitlines():
        here = where
        for words in _parts(line):
            while words and (words[0] in ("sudo", "exec", "command") or _ASSIGNMENT.fullmatch(words[0])):
                words = words[1:]
            if len(words) == 2 and words[0] == "cd" and _where({"working-directory": words[1]}):
                here = words[1] if here == "." else f"{here}/{words[1]}"
            elif words and words[0] != "cd":
                yield here.rstrip("/"), tuple(words)


def _parts(line: str) -> Iterable[list[str]]:
    """The commands of a line; none if it is more than a row of plain ones."""
    lexer = shlex.shlex(line.strip().lstrip("@-"), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return
    operators = {word for word in words if _OPERATORS.fullmatch(word)}
    if operators - {"&&", ";"} or any("$" in word or "`" in word for word in words):
        return
    for is_end, part in itertools.groupby(words, lambda word: word in ("&&", ";")):
        if not is_end:
            yield list(part)


def _test(tree: Tree, where: str, argv: Argv) -> Argv | None:
    """The command, if it runs tests and needs nothing but an environment for that."""
    match argv:
        case ("npm" | "pnpm" | "yarn" | "bun", "test" | "t", *_):
            return argv
        case ("npm" | "pnpm" | "yarn" | "bun", "run" | "run-script", name, *_) if _TESTED.match(name):
            return argv
        case ("yarn" | "pnpm", name, *_) if _TESTED.match(name):
            return argv
        case ("go" | "cargo", "test", *_) | ("pytest", *_):
            return argv
        case ("python" | "python3", "-m", "pytest" | "unittest", *_):
            return ("python3", *argv[1:])
        case ("mvn" | "gradle", *words) if {"test", "check", "verify"} & set(words):
            return argv
        case ("./mvnw" | "./gradlew", *words) if {"test", "check", "verify"} & set(words):
            return ("sh", *argv)
        case ("sh" | "bash" | "python" | "python3" | "node" | "perl" | "ruby" as program, file, *_):
            fits = _TEST_FILE.fullmatch(file) and tree.inside(where).has(file.removeprefix("./"))
            return ("python3" if program == "python" else program, *argv[1:]) if fits else None
        case (file, *_) if file.startswith("./") and _TEST_FILE.fullmatch(file):
            return argv if tree.inside(where).has(file.removeprefix("./")) else None
    return None


def _installation(argv: Argv) -> Argv | None:
    """The command, if it has a package manager install what the project needs."""
    match argv:
        case ("npm", "ci" | "install" | "i", *words) if not any(_is_name(word) for word in words):
            return None if {"-g", "--global"} & set(words) else argv
        case ("pnpm" | "yarn" | "bun", "install", *_) | ("yarn",):
            return argv
        case ("go", "mod", "download") | ("cargo", "fetch", *_):
            return argv
        case ("pip" | "pip3", "install", *words) | ("python" | "python3", "-m", "pip", "install", *words) if (
            words
        ):
            return ("python3", "-m", "pip", "install", *words)
    return None


def _is_name(word: str) -> bool:
    return not word.startswith("-")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
