"""Environments: directories with installed packages, each made once for all who need the same.

An environment is made in a directory of its own under a name that nothing else has, and counts from the moment a link
of its name points to it. A process that dies before that leaves nothing that counts. It is never moved: the programs
that a package brings name the Python that they belong to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import sysconfig
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from ratchet.files import discard, try_lock
from ratchet.kernel import RatchetError

_DAY = 24 * 3600.0
_OURS = re.compile(r"[0-9a-f]{32}(-[0-9a-f]{8})?")


def sweep(root: Path, keep_days: int, seconds: float) -> None:
    """Look through all environments in `root`. One that is being made is left alone, however long that takes."""
    now = time.time()
    ours = [each for each in root.iterdir() if _OURS.fullmatch(each.name)]
    links = [each for each in ours if each.is_symlink()]
    old = [link for link in links if _age(link.resolve(), now) > keep_days * _DAY]
    for link in old:
        # First what makes it count, then the rest.
        link.unlink(missing_ok=True)
    used = {link.resolve() for link in links if link not in old}
    for directory in ours:
        if directory.is_symlink() or directory in used:
            continue
        if _age(directory, now) > seconds and _abandoned(directory):
            discard(directory)


def _abandoned(directory: Path) -> bool:
    """Whether nobody is making this environment."""
    lock = directory.with_name(directory.name.partition("-")[0]).with_suffix(".lock")
    with contextlib.suppress(OSError), lock.open("w") as file:
        return try_lock(file)
    return False


def _age(directory: Path, now: float) -> float:
    try:
        return now - directory.stat().st_mtime
    except OSError:
        return float("inf")


# Where packages come from and how they are reached; not where they go, and no tokens for publishing.
_NAMES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_TRUSTED_HOST"),
    *("PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_CONSTRAINT"),
    *("PIP_CONFIG_FILE", "PIP_ONLY_BINARY", "PIP_PREFER_BINARY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)


def source_variables(ours: Mapping[str, str], *more: str) -> dict[str, str]:
    """Those of our variables that an installer needs, and `more` of them by name."""
    return {name: ours[name] for name in (*_NAMES, *more) if name in ours}


def named_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """What the variables name on this machine, such as a directory of packages."""
    words = (Path(word.removeprefix("file://")) for value in environment.values() for word in value.split())
    return tuple(
        path
        for path in words
        if path.is_absolute() and path != Path("/") and ".." not in path.parts and path.exists()
    )


def own_pip(python: str) -> list[str] | None:
    """The pip that Python carries with it, which runs without being installed."""
    wheels = [wheel for place in _wheel_places() for wheel in sorted(place.glob("pip-*.whl"))]
    if wheels:
        return [python, "-I", f"{wheels[-1]}/pip"]
    return None


def _wheel_places() -> list[Path]:
    """Where a Python keeps the wheel of its pip: inside `ensurepip`, or where a distribution has put it instead."""
    carried = find_spec("ensurepip")
    told = sysconfig.get_config_var("WHEEL_PKG_DIR")
    inside = [] if carried is None or carried.origin is None else [Path(carried.origin).parent / "_bundled"]
    return [*([Path(told)] if told else []), *inside]


_PAUSE_SECONDS = 0.05


class Busy(RatchetError):
    """Another process has been making the same environment for too long."""


def find(link: Path) -> Path | None:
    """The environment that `link` points to, marked as used; nothing if it does not lead to a whole one."""
    directory = link.resolve()
    try:
        os.utime(directory)
    except OSError:
        return None
    return directory if directory.parent == link.parent.resolve() and link.is_symlink() else None


async def find_or_make(
    link: Path, make: Callable[[Path], Awaitable[None]], *, seconds: float, keep_days: int
) -> Path:
    """The environment at `link`. If there is none yet, `make` fills a new directory, which it has to create.

    One process makes it and the others wait, for `seconds` at most. Old ones are removed first. Raises `Busy`,
    `OSError`, and what `make` raises; then nothing is left.
    """
    if (found := find(link)) is not None:
        return found
    link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    async with _locked(link, seconds):
        # The process that held the lock before may have made it.
        return find(link) or await _made(link, make, seconds, keep_days)


def forget(link: Path) -> None:
    """Have it made again when it is next needed. What still uses it can continue: it is removed with the next sweep."""
    link.unlink(missing_ok=True)


async def _made(link: Path, make: Callable[[Path], Awaitable[None]], seconds: float, keep_days: int) -> Path:
    await asyncio.to_thread(sweep, link.parent, keep_days, seconds)
    directory = link.with_name(f"{link.name}-{secrets.token_hex(4)}")
    try:
        await make(directory)
        pointer = directory.with_suffix(".link")
        pointer.symlink_to(directory.name)
        pointer.replace(link)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        raise
    return directory


@contextlib.asynccontextmanager
async def _locked(link: Path, seconds: float) -> AsyncIterator[None]:
    """Only one process makes an environment. The kernel lets go of the lock of one that dies."""
    deadline = time.monotonic() + seconds
    with link.with_suffix(".lock").open("w") as file:
        while not try_lock(file):
            if time.monotonic() > deadline:
                raise Busy(f"another process has been installing the same packages for {seconds:g} s")
            await asyncio.sleep(_PAUSE_SECONDS)
        yield
