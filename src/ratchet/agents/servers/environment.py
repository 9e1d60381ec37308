"""What the servers of agents can import: the kit with what it needs, and what their requirements.txt names."""

from __future__ import annotations

import asyncio
import functools
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import ratchet
from ratchet.agentkit import relay
from ratchet.kernel import RatchetError
from ratchet.sandbox import Policy, Warm
from ratchet.sandbox.nursery import nursery
from ratchet.sandbox.policy import package_directories

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_PACKAGE = Path(ratchet.__file__).parent
# What the kit imports, and what makes its servers fast.
KIT = ("mcp", "uvicorn", "jsonschema", "pydantic", "httptools")
_NO_PACKAGE = ("..", "__pycache__")
_MODULE = relay.__name__


REQUIREMENTS = "requirements.txt"
_MOST_BYTES = 64 * 1024


async def packages_of(directory: Path) -> Path | None:
    """Where the packages lie that the requirements.txt of a version names; none without one.

    Those with the same lines share them, on this machine and for this user. They are installed when they are first
    needed, in the sandbox, which has the network for that, and beside the kit: what both need has the kit's version.
    Raises `CannotInstall`.
    """
    wanted = await asyncio.to_thread(read_requirements, directory)
    if not wanted:
        return None
    # Slow to import, and few agents have any.
    from ratchet.config.workflow_settings import Tools
    from ratchet.tools.call import ToolCallFailed
    from ratchet.tools.environments import environment_for

    kit = sorted(f"{name}=={each.version}" for name, each in needed(KIT).items())
    try:
        made = await environment_for(wanted, _cache(), Tools(), kit)
    except ToolCallFailed as error:
        raise CannotInstall(
            f"{REQUIREMENTS} cannot be installed: {error}",
            hint=f"name packages that there are, in versions that go with the kit's ({', '.join(kit[:3])}, …)",
        ) from error
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return made.directory / "lib" / version / "site-packages"


class CannotInstall(RatchetError):
    """What an agent's requirements.txt names cannot be had."""


def read_requirements(directory: Path) -> tuple[str, ...]:
    """The lines of requirements.txt that name packages. Raises `CannotInstall`."""
    try:
        file = os.open(directory / REQUIREMENTS, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise CannotInstall(f"{REQUIREMENTS} cannot be read: {error.strerror}") from error
    with os.fdopen(file, "rb") as opened:
        content = opened.read(_MOST_BYTES + 1)
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CannotInstall(f"{REQUIREMENTS} is not text in UTF-8: {error}") from error
    if len(content) > _MOST_BYTES:
        raise CannotInstall(f"{REQUIREMENTS} has more than {_MOST_BYTES:,} bytes")
    return tuple(line for each in lines if (line := each.partition("#")[0].strip()))


def _cache() -> Path:
    """What is kept for all homes of this user, since it follows from the lines alone."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if chosen.startswith("/") else Path.home() / ".cache") / "ratchet"


def server_start(*, alone: bool) -> Warm:
    """How a server begins: in a fork of a parent that has the kit loaded."""
    entry = relay.start_alone if alone else relay.start_beside_relay
    return Warm(
        entry=f"{_MODULE}.{entry.__name__}",
        prepare=f"{_MODULE}.{relay.prepare.__name__}",
        modules=(_MODULE,),
        path=(str(_PACKAGE.parent), *package_directories()),
    )


def warm_up() -> None:
    """Have that parent load the kit, before a server is wanted."""
    nursery().warm_up(server_start(alone=False))


def kit_only(policy: Policy, *others: str) -> Policy:
    """The same policy, with nothing to import but Python's library, the kit, and the packages `others` by name."""
    places = [_PACKAGE / "__init__.py", _PACKAGE / "agentkit", *packages((*KIT, *others))]
    hidden = tuple(path for each in package_directories() if (path := Path(each)).is_dir())
    return Policy(
        network=policy.network,
        readable=policy.readable,
        writable=policy.writable,
        read_only=policy.read_only,
        hidden=(*policy.hidden, *hidden),
        places={**policy.places, **{each: each for each in places}},
        environment=policy.environment,
        floor=policy.floor,
    )


@functools.cache
def packages(names: Sequence[str]) -> tuple[Path, ...]:
    """The files and directories of these packages, and of all that they need."""
    found: dict[str, None] = {}
    for each in needed(names).values():
        for file in each.files or ():
            if file.parts[0] not in _NO_PACKAGE:
                found[str(each.locate_file(file.parts[0]))] = None
    return tuple(path for path in map(Path, found) if path.exists() and path.parent != path)


@functools.cache
def needed(names: Sequence[str]) -> Mapping[str, metadata.Distribution]:
    """These packages and all that they need on this machine, by name."""
    from packaging.requirements import Requirement

    seen: set[tuple[str, frozenset[str]]] = set()
    found: dict[str, metadata.Distribution] = {}
    waiting = [Requirement(name) for name in names]
    while waiting:
        wanted = waiting.pop()
        name, extras = plain_name(wanted.name), frozenset(wanted.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            distribution = found.setdefault(name, metadata.distribution(name))
        except metadata.PackageNotFoundError:
            continue
        waiting += _requirements(distribution, extras)
    return found


def _requirements(distribution: metadata.Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    from packaging.requirements import Requirement

    for line in distribution.requires or ():
        needed = Requirement(line)
        if needed.marker is None or any(needed.marker.evaluate({"extra": each}) for each in ("", *extras)):
            yield needed


def plain_name(name: str) -> str:
    """A package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()
