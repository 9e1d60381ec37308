"""Package managers and programs that a set-up calls, and what to try where one command asks for too much."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ratchet.kernel import decoded
from ratchet.programs import run_program

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/nix/store")
_OFTEN = ("node", "npm", "npx", "git", "make", "cargo", "rustc", "go", "java", "mvn", "gradle")
# What Debian's Java and Maven keep outside /usr.
_SETTINGS = (
    "/etc/maven",
    "/etc/java",
    "/etc/java-11-openjdk",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
)


@dataclass(frozen=True, slots=True)
class Programs:
    """Directories that are searched for programs, and paths that these programs read."""

    places: tuple[str, ...]
    readable: tuple[str, ...]


def find_programs(named: Iterable[str]) -> Programs:
    """Those of the user's PATH that lie elsewhere than among the system's own."""
    places: dict[str, None] = {}
    readable: dict[str, None] = {path: None for path in _SETTINGS if Path(path).is_dir()}
    for name in dict.fromkeys((*named, *_OFTEN)):
        # Python comes from the environment itself.
        found = (
            None
            if "/" in name or name.startswith(("python", "pip"))
            else shutil.which(name, path=os.environ.get("PATH", os.defpath))
        )
        if found is None or _is_system(Path(found)):
            continue
        place, real = Path(found).absolute().parent, Path(found).resolve()
        places[str(place)] = None
        for path in (place, *_prefix(real)):
            readable[str(path)] = None
    return Programs(tuple(places), tuple(readable))


def _prefix(program: Path) -> tuple[Path, ...]:
    """The installation that a program belongs to, unless that is the user's own directory with all that is in it."""
    if _is_system(program):
        return ()
    top = program.parent.parent
    home = Path.home().resolve()
    is_private = home == top or home.is_relative_to(top) or top in (home / ".local", home / ".cargo")
    return (program.parent,) if is_private or program.parent.name != "bin" else (top,)


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(each) for each in _SYSTEM)


PYTHON_MANAGERS = frozenset({"uv", "poetry", "pdm", "pipenv", "tox", "nox", "hatch"})
NODE_MANAGERS = frozenset({"pnpm", "yarn", "bun"})
_DEBIAN = {
    "cargo": "cargo",
    "go": "golang-go",
    "gradle": "gradle",
    "java": "default-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "npx": "npm",
}
_UNREACHABLE = re.compile(
    r"could not resolve host|no such host|name resolution|unknown host|ENOTFOUND|EAI_AGAIN|ECONNREFUSED"
    r"|connection refused|network is unreachable|could not transfer artifact|failed to establish a new connection",
    re.IGNORECASE,
)
_MIRRORS = {
    "cargo": "a source in ~/.cargo/config.toml",
    "go": "GOPROXY",
    **dict.fromkeys(("mvn", "mvnw"), "a mirror in .mvn/settings.xml, which .mvn/maven.config names with -s"),
    "uv": "UV_DEFAULT_INDEX",
    **dict.fromkeys(("npm", *NODE_MANAGERS), "npm_config_registry"),
}


def how_to_reach(program: str, said: str) -> str | None:
    """What to do where the output of a manager says that it reached no registry; nothing where it does not."""
    if _UNREACHABLE.search(said) is None:
        return None
    mirror = _MIRRORS.get(program, "PIP_INDEX_URL")
    return f"no registry was reached: set HTTPS_PROXY, or a mirror with {mirror}, and try again"


def python_package(name: str) -> str:
    """What pip is asked for. PDM has an extra with the versions that it was tested with, and needs them."""
    return "pdm[locked]" if name == "pdm" else name


def how_to_install(program: str) -> str:
    """What to do about a program that is missing: the line to type, if it is known."""
    if program in PYTHON_MANAGERS:
        return f"install {program}: python3 -m pip install {program}"
    if program in NODE_MANAGERS:
        return f"install {program}: npm install --global {program}"
    if shutil.which("apt-get") is None:
        return f"install {program}"
    return f"install {program}: apt-get install {_DEBIAN.get(program, program)}"


def missing_packages(names: Sequence[str]) -> str | None:
    """What to say about packages of the system that the project's CI installs and this machine lacks."""
    program = shutil.which("dpkg-query")
    if not names or program is None:
        return None
    asked = run_program([program, "--show", "--showformat=${Package} ${db:Status-Status}\\n", *names])
    known = decoded(asked.stdout).splitlines()
    here = {name for name, _, status in (line.partition(" ") for line in known) if status == "installed"}
    lacking = [name for name in names if name not in here]
    return (
        f"its CI installs what this machine lacks: apt-get install {' '.join(lacking)}" if lacking else None
    )


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
        package = json.loads(file.read_text()) if file.resolve() == file and file.is_file() else None
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
            changed.unlink(missing_ok=True)
            with changed.open("x") as opened:  # never where a link leads
                json.dump(package, opened, indent=2)
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
