"""CI of a repository: who runs it, which checks it declares, requires or hints at.

Only plain commands are read, without variables, pipes and redirections. Services, caches and actions of others are not.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from ratchet.projects.discovery.facts import Argv, CheckKind, ProjectCheck, Provider, StackFindings, inside
from ratchet.projects.discovery.tree import SourceTree, is_untouched, runs_nothing, table

_HOST = re.compile(r"^(?:[a-z+]+://)?(?:[^/@]*@)?([^/:]+)", re.IGNORECASE)


def find_provider(tree: SourceTree, origin: str | None) -> Provider | None:
    """The one whose files are there; if both or none are, the one that the origin belongs to."""
    with_github = bool(workflow_files(tree))
    with_gitlab = tree.has(".gitlab-ci.yml")
    if with_github != with_gitlab:
        return "github" if with_github else "gitlab"
    by_origin = provider_of(origin or _origin(tree))
    return by_origin or ("github" if with_github else None)


def workflow_files(tree: SourceTree) -> list[str]:
    """The workflows of GitHub Actions."""
    folder = ".github/workflows"
    return [f"{folder}/{name}" for name in tree.names(folder) if name.endswith((".yml", ".yaml"))]


def provider_of(url: str | None) -> Provider | None:
    """Whose address it is, by a host such as github.com, github.example.org or gitlab.example.org."""
    found = _HOST.match(url or "")
    labels = found[1].lower().split(".") if found else []
    if "github" in labels:
        return "github"
    return "gitlab" if "gitlab" in labels else None


def _origin(tree: SourceTree) -> str | None:
    """The address of `origin` as git's own file has it."""
    remote = tree.ini(".git/config").get('remote "origin"', {})
    return remote.get("url")


_MOST = 100
_LONGEST_NAME = 200
_FILTERS = ("paths", "paths-ignore", "branches-ignore", "tags", "tags-ignore")
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_NOT_JOBS = frozenset(
    {"after_script", "before_script", "cache", "default", "image", "include", "pages", "services", "spec"}
    | {"stages", "types", "variables", "workflow"}
)
# A GitLab job with one of these may be left out of a pipeline, and one that was left out reports nothing.
_SOMETIMES = ("rules", "only", "except", "trigger", "parallel")


def required_checks(tree: SourceTree, provider: Provider | None) -> tuple[str, ...]:
    """The names that the provider will report for a change. Jobs that may be left out are not among them."""
    names: Iterator[str] = iter(())
    if provider == "github":
        names = itertools.chain.from_iterable(
            _of_workflow(tree, path) for path in workflow_files(tree)[:_MOST_FILES]
        )
    elif provider == "gitlab":
        names = _of_gitlab(tree)
    fit = (name for name in names if 0 < len(name) <= _LONGEST_NAME and name.isprintable())
    return tuple(itertools.islice(dict.fromkeys(fit), _MOST))


def _of_workflow(tree: SourceTree, path: str) -> Iterator[str]:
    workflow = tree.yaml(path)
    if not _runs_always(workflow.get("on")):
        return
    ours = is_untouched(tree.text(path) or "")
    for key, job in table(workflow, "jobs").items():
        if not isinstance(job, dict) or "if" in job or (ours and _has_nothing_to_run(tree, key)):
            continue
        if "uses" in job:
            tree.note(f"the checks of the job {key!r} in {path!r} are named by another workflow")
            continue
        yield from _of_job(tree, path, key, job)


def _of_job(tree: SourceTree, path: str, key: str, job: dict[str, Any]) -> Iterator[str]:
    name = job.get("name")
    name = name if isinstance(name, str) and name else None
    matrix = table(job, "strategy", "matrix")
    if not matrix and "matrix" not in table(job, "strategy"):
        chosen: list[dict[str, str]] | None = [{}]
    else:
        chosen = _combinations(matrix)
    if chosen is None:
        tree.note(f"the checks of the job {key!r} in {path!r} depend on a matrix that is not plain")
        return
    for values in chosen:
        told = f" ({', '.join(values.values())})" if values else ""
        filled = f"{key}{told}" if name is None else _filled(name, values)
        if filled is None:
            tree.note(f"the name of the job {key!r} in {path!r} is only known when it runs")
            return
        yield filled + (told if name is not None and values and "${{" not in name else "")


def _combinations(matrix: dict[str, Any]) -> list[dict[str, str]] | None:
    """Every choice of values; nothing for a matrix that does more than list plain ones."""
    lists = matrix.values()
    if not matrix or not all(
        isinstance(each, list) and all(isinstance(v, str) for v in each) for each in lists
    ):
        return None
    if "include" in matrix or "exclude" in matrix:
        return None
    products = itertools.islice(itertools.product(*lists), _MOST)
    return [dict(zip(matrix, values, strict=True)) for values in products]


def _filled(name: str, values: dict[str, str]) -> str | None:
    """A name with the values of a matrix put in; nothing if it has other expressions."""
    if len(name) > _LONGEST_NAME:
        return None
    known = {f"matrix.{key}": value for key, value in values.items()}
    if any(each not in known for each in _EXPRESSION.findall(name)):
        return None
    return _EXPRESSION.sub(lambda found: known[found[1]], name)


def _runs_always(on: Any) -> bool:
    """Whether a workflow runs for each push to any branch, or for each pull request."""
    if isinstance(on, str):
        return on in ("push", "pull_request")
    if isinstance(on, list):
        return "push" in on or "pull_request" in on
    events = on if isinstance(on, dict) else {}
    push, request = (events.get(name, None) for name in ("push", "pull_request"))
    return ("push" in events and _takes_all(push, "branches")) or (
        "pull_request" in events and _takes_all(request, "types")
    )


def _takes_all(event: Any, filter_key: str) -> bool:
    """A branch filter of a pull request is about where it goes, which is the base: that one is let through."""
    said = event if isinstance(event, dict) else {}
    if any(key in said for key in _FILTERS):
        return False
    if filter_key not in said:
        return True
    wanted = said[filter_key]
    return wanted in ("**", ["**"]) or (
        isinstance(wanted, list) and ("**" in wanted or "synchronize" in wanted)
    )


def _of_gitlab(tree: SourceTree) -> Iterator[str]:
    path = ".gitlab-ci.yml"
    ours = is_untouched(tree.text(path) or "")
    for name, job in tree.yaml(path).items():
        if name in _NOT_JOBS or name.startswith(".") or not isinstance(job, dict):
            continue
        if not any(key in job for key in ("script", "extends", "run")):
            continue
        if any(key in job for key in _SOMETIMES) or job.get("when") in ("manual", "delayed", "on_failure"):
            continue
        if job.get("allow_failure") == "true" or (ours and _has_nothing_to_run(tree, name)):
            continue
        yield name


def _has_nothing_to_run(tree: SourceTree, job: str) -> bool:
    return runs_nothing(tree.text(f"{SCRIPTS}/{job}.sh") or "")


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


def look_for_scripts(tree: SourceTree) -> StackFindings:
    """The scripts in scripts/ci that somebody wrote. One that Ratchet wrote only repeats what was found."""
    checks: dict[CheckKind, ProjectCheck] = {}
    for name, kind in SCRIPT_KINDS.items():
        path = f"{SCRIPTS}/{name}.sh"
        text = tree.text(path)
        if text is not None and not is_untouched(text):
            checks.setdefault(kind, ProjectCheck(f"ci-{name}", ("bash", path), kind))
    bootstrap = tree.text(f"{SCRIPTS}/bootstrap.sh")
    ready = bootstrap is not None and not is_untouched(bootstrap)
    return StackFindings(
        None, tuple(checks.values()), (), (("bash", f"{SCRIPTS}/bootstrap.sh"),) if ready else ()
    )


def look_for_make(tree: SourceTree) -> StackFindings:
    """The usual targets of a Makefile, as make itself would choose the file."""
    checks: dict[CheckKind, ProjectCheck] = {}
    for target, lines in recipes(makefile(tree) or "").items():
        kind = _TARGETS.get(target)
        # What installs or fetches something cannot be a check: that has no network.
        if kind is not None and not any(map(FETCHES.search, lines)):
            checks.setdefault(kind, ProjectCheck(f"make-{target}", ("make", target), kind))
    return StackFindings(None, tuple(checks.values()))


def makefile(tree: SourceTree) -> str | None:
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


def look_for_hooks(tree: SourceTree) -> StackFindings:
    """pre-commit fetches its hooks, so it is for CI."""
    if not tree.has(".pre-commit-config.yaml"):
        return StackFindings()
    argv = ("python3", "-m", "pre_commit", "run", "--all-files")
    return StackFindings(None, (), (ProjectCheck("pre-commit", argv, "lint", needs="pre-commit"),))


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


def look_for_ci(tree: SourceTree) -> list[StackFindings]:
    """How CI tests the repository, and what it installs for that with a package manager, one for each stack."""
    commands = list(itertools.islice(_commands(tree), _MOST_COMMANDS))
    tests = [(where, argv) for where, each in commands if (argv := _test(tree, where, each)) is not None]
    tests = list(dict.fromkeys(tests))[:_TESTS]
    if not tests:
        return []
    checks = tuple(
        ProjectCheck(f"ci-test-{number}" if number else "ci-test", inside(where, argv), "test")
        for number, (where, argv) in enumerate(tests)
    )
    setup = [(where, argv) for where, each in commands if (argv := _installation(each)) is not None]
    stacks = [_STACKS.get(argv[0]) for _, argv in (*tests, *setup)]
    first, *others = dict.fromkeys(filter(None, stacks)) or [None]
    found = StackFindings(
        first, checks, (), tuple(dict.fromkeys(inside(where, argv) for where, argv in setup))
    )
    return [found, *(StackFindings(each) for each in others)]


def system_packages(tree: SourceTree) -> tuple[str, ...]:
    """What CI and a Dockerfile install with Debian's package manager."""
    names: dict[str, None] = {}
    for _, argv in itertools.islice(_commands(tree), _MOST_COMMANDS):
        if argv[0] in ("apt-get", "apt") and "install" in argv:
            words = argv[argv.index("install") + 1 :]
            names |= dict.fromkeys(word for word in words if _PACKAGE.fullmatch(word))
    return tuple(names)[:_MOST_PACKAGES]


def _commands(tree: SourceTree) -> Iterator[Command]:
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


def _test(tree: SourceTree, where: str, argv: Argv) -> Argv | None:
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
