"""What to try where one command asks for too much: extras that exclude each other, a lock that is out of date."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

Argv = tuple[str, ...]
_PIP = ("python3", "-m", "pip", "install")
_WITH_VALUE = ("-r", "--requirement", "-e", "--editable", "--group", "--extra", "-G", "--with")
_SCRIPTLESS = frozenset({"--ignore-scripts", "--mode=skip-build"})
# How managers of Node's packages name one that the registry does not have.
_ABSENT = re.compile(
    r"""(?:No\ matching\ version\ found\ for\s+|404\s+')(@?[\w./-]+)@
    | Couldn't\ find\ (?:package|any\ versions\ for)\ "(@?[\w./-]+)"
    | (@?[\w./-]+)@npm:\S+\ No\ candidates\ found""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Weaker:
    """`needed` must work; `wished` may fail."""

    needed: tuple[Argv, ...]
    wished: tuple[Argv, ...] = ()


def weaker(argv: Sequence[str], lock: str = "") -> Weaker | None:
    """A form of the command that asks for less; nothing if there is none. `lock` is what its lock file says."""
    match tuple(argv):
        case ("python3", "-m", "pip", "install", *words):
            return _pip(words)
        case ("uv", "sync", *words):
            groups = _values(words, "--group")
            less = _without(words, "--all-extras", "--all-groups", "--group", "--extra")
            wished = tuple(("uv", "sync", *less, "--group", name) for name in groups)
            return Weaker((("uv", "sync", *less),), wished) if less != tuple(words) else None
        case ("poetry" | "pdm" as program, "install", *words):
            less = _without(words, "--all-extras", "-G", "--with")
            if less != tuple(words):
                return Weaker(((program, "install", *less),))
            # It may not work with the index that pip is configured for, or not at all.
            if pinned := _pinned(lock):
                return Weaker(((*_PIP, "--no-deps", *pinned),), ((*_PIP, "--no-deps", "-e", "."),))
            return Weaker(((*_PIP, "-e", "."),))
        case ("npm", "ci", *_):
            return Weaker((("npm", "install"),))
        case ("npm", "install"):
            return Weaker((("npm", "install", "--legacy-peer-deps"),))
        case ("npm" | "pnpm" | "yarn" as program, "install", *words) if not _SCRIPTLESS & set(words):
            # A package's own script may fetch what no registry has, such as a browser.
            flag = "--mode=skip-build" if "--immutable" in words else "--ignore-scripts"
            return Weaker(((program, "install", *words, flag),))
        case ("mvn" | "sh", *_, "-Dmaven.test.failure.ignore=true", "package"):
            return Weaker(((*argv[:-2], "-DskipTests", "package"),))
    return None


def _pinned(lock: str) -> list[str]:
    """The packages of a lock file of Poetry or PDM that come from an index, as pip is asked for them."""
    try:
        packages = tomllib.loads(lock).get("package", [])
    except tomllib.TOMLDecodeError:
        return []
    found = []
    for each in packages if isinstance(packages, list) else []:
        name, version = each.get("name"), each.get("version")
        source = each.get("source") or {}
        is_elsewhere = source.get("type", "legacy") != "legacy" or {"path", "url", "git"} & each.keys()
        if isinstance(name, str) and isinstance(version, str) and not is_elsewhere:
            marker = each.get("marker") or each.get("markers")
            found.append(f"{name}=={version}" + (f" ; {marker}" if isinstance(marker, str) else ""))
    return found


def make_do(said: str, file: Path) -> str | None:
    """Have a package.json want an older version of what the registry does not have, or else not want it at all.

    Only what is for work on the project, and only what the output of a failed installation names. Returns what was
    done; nothing if nothing was. Does not write where a link leads.
    """
    with contextlib.suppress(OSError, ValueError):
        package = json.loads(file.read_text()) if file.resolve() == file else None
        wanted = package.get("devDependencies") if isinstance(package, dict) else None
        for names in _ABSENT.findall(said):
            name = "".join(names)
            if not isinstance(wanted, dict) or not isinstance(wanted.get(name), str):
                continue
            version = wanted.pop(name)
            number = re.match(r"[\^~=v>]*(\d+(?:\.\d+)*)$", version)
            if number is not None:
                wanted[name] = f"<={number[1]}"
            changed = file.with_suffix(".changed")
            changed.write_text(json.dumps(package, indent=2))
            changed.replace(file)
            instead = "an older version was taken" if number is not None else "it was left out"
            return f"{name}@{version} is not in the registry: {instead}"
    return None


def _pip(words: Sequence[str]) -> Weaker | None:
    """The project first, then each file, group and package by itself."""
    needed: list[Argv] = []
    wished: list[Argv] = []
    options: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-e", "--editable") and rest:
            where = rest.pop(0)
            plain = where.partition("[")[0]
            needed.append(("-e", plain))
            extras = where.removeprefix(plain).strip("[]")
            wished += [("-e", f"{plain}[{each}]") for each in extras.split(",") if each]
        elif word in _WITH_VALUE and rest:
            wished.append((word, rest.pop(0)))
        elif word.startswith("-"):
            options.append(word)
        else:
            wished.append((word,))
    if len(needed) + len(wished) < 2:
        return None
    start = (*_PIP, *options)
    return Weaker(tuple((*start, *each) for each in needed), tuple((*start, *each) for each in wished))


def _values(words: Sequence[str], option: str) -> list[str]:
    return [then for word, then in itertools.pairwise(words) if word == option]


def _without(words: Sequence[str], *options: str) -> Argv:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in options:
            skip = word in _WITH_VALUE
        else:
            kept.append(word)
    return tuple(kept)
