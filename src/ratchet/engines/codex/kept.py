"""Rollouts that are kept so that a session can be resumed by any later process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ratchet.engines.kept import KeptSessions


class KeptRollouts:
    def __init__(self, kept: KeptSessions) -> None:
        self._kept = kept

    def keep(self, thread: str, rollout: Path, hide: Callable[[str], str]) -> None:
        """Keep the rollout of a thread, without secrets."""
        self._kept.put(thread, hide(rollout.read_text(errors="replace")).encode())

    def bring_back(self, thread: str, rollouts: Path) -> bool:
        """Put the rollout of a thread where Codex looks for it; false if it is not kept any more."""
        content = self._kept.get(thread)
        if content is None:
            return False
        target = rollouts / "2000" / "01" / "01" / f"rollout-2000-01-01T00-00-00-{thread}.jsonl"
        target.parent.mkdir(parents=True)
        target.write_bytes(content)
        return True
