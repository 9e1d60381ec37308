"""A directory whose content decides something, held to the hash that it had."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ratchet.judges.fingerprint import Unpinnable, tree_hash
from ratchet.judges.scratch import in_thread
from ratchet.kernel import Misuse


class Changed(Exception):
    """A pinned directory is not what it was."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """`sha256` is worked out at once, or given, to hold the directory to what somebody saw before."""

    directory: Path
    sha256: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", Path(self.directory).resolve())
        if not self.sha256:
            object.__setattr__(self, "sha256", _hash(self.directory))

    def check(self) -> None:
        """Raise `Changed` when the content is not what it was."""
        try:
            found = tree_hash(self.directory)
        except (OSError, Unpinnable) as error:
            raise Changed(f"{self.directory} cannot be read as it was: {error}") from None
        if found != self.sha256:
            raise Changed(f"{self.directory} was changed: its hash is {found}, not {self.sha256}")

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """Raises `Changed` when the content is not what it was, before or after, whatever was found out meanwhile."""
        await in_thread(self.check)
        try:
            yield
        except Exception:
            await in_thread(self.check)
            raise
        await in_thread(self.check)


def _hash(directory: Path) -> str:
    try:
        return tree_hash(directory)
    except (OSError, Unpinnable) as error:
        raise Misuse(
            f"{directory} cannot be pinned: {error}", hint="give a directory of plain files, without links"
        ) from None
