"""What is kept of sessions so that any later process can go on with them.

One directory for each day: what is too old goes as whole directories, and a session is looked for in few of them.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

_TOKEN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDING = ".jsonl.gz"


def _today() -> date:
    return datetime.now(UTC).date()


class KeptSessions:
    """Compressed files at `directory/DAY/TOKEN`, for as many days as are given."""

    def __init__(self, directory: Path, days: int, *, today: Callable[[], date] = _today) -> None:
        self._directory = directory
        self._days = days
        self._today = today

    def put(self, token: str, content: bytes) -> None:
        """Keep what belongs to `token`, in place of what was kept before, and forget what is too old."""
        if not _TOKEN.fullmatch(token):
            raise ValueError(f"{token!r} is not the id of a session")
        target = self._directory / self._today().isoformat() / (token + _ENDING)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Beside it and renamed: a process that dies here leaves no half file.
        descriptor, temporary = tempfile.mkstemp(dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(gzip.compress(content, 1))
            Path(temporary).replace(target)
        finally:
            Path(temporary).unlink(missing_ok=True)
        for day, older in self._kept():
            if older != target.parent:
                (older / target.name).unlink(missing_ok=True)
            if day < self._today() - timedelta(days=self._days):
                shutil.rmtree(older, ignore_errors=True)

    def get(self, token: str) -> bytes | None:
        """What was kept for `token`; nothing if it is not kept any more, or damaged."""
        # The token comes from outside and becomes a path.
        if not _TOKEN.fullmatch(token):
            return None
        for _, directory in self._kept():
            try:
                return gzip.decompress((directory / (token + _ENDING)).read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, EOFError, zlib.error):
                return None
        return None

    def _kept(self) -> list[tuple[date, Path]]:
        """Every day with what was kept on it, the latest first."""
        found = []
        for path in self._directory.glob("????-??-??"):
            try:
                found.append((date.fromisoformat(path.name), path))
            except ValueError:
                continue  # not ours
        return sorted(found, reverse=True)
