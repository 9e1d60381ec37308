"""Rollouts that are kept so that a session can be resumed by any later process.

One directory for each day: what is too old goes as whole directories, and a thread is looked for in few of them.
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

_THREAD = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENDING = ".jsonl.gz"


def _today() -> date:
    return datetime.now(UTC).date()


class KeptRollouts:
    def __init__(self, directory: Path, days: int, *, today: Callable[[], date] = _today) -> None:
        self._directory = directory
        self._days = days
        self._today = today

    def keep(self, thread: str, rollout: Path, hide: Callable[[str], str]) -> None:
        """Keep the rollout of a thread, without secrets, and forget those that are too old."""
        if not _THREAD.fullmatch(thread):
            raise ValueError(f"{thread!r} is not the id of a thread")
        target = self._directory / self._today().isoformat() / (thread + _ENDING)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = hide(rollout.read_text(errors="replace")).encode()
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

    def bring_back(self, thread: str, rollouts: Path) -> bool:
        """Put the rollout of a thread where Codex looks for it; false if it is not kept any more."""
        found = _THREAD.fullmatch(thread) and next(
            (path for _, each in self._kept() if (path := each / (thread + _ENDING)).exists()), None
        )
        if not found:
            return False
        target = rollouts / "2000" / "01" / "01" / f"rollout-2000-01-01T00-00-00-{thread}.jsonl"
        target.parent.mkdir(parents=True)
        try:
            with gzip.open(found) as kept, target.open("wb") as out:
                shutil.copyfileobj(kept, out)
        except (OSError, EOFError, zlib.error):  # pruned just now, or damaged
            return False
        return True

    def _kept(self) -> list[tuple[date, Path]]:
        """Every day with what was kept on it, the latest first."""
        found = []
        for path in self._directory.glob("????-??-??"):
            try:
                found.append((date.fromisoformat(path.name), path))
            except ValueError:
                continue  # not ours
        return sorted(found, reverse=True)
