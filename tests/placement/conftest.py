"""A cluster that is pretended by processes of this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.placement import Brokered

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Brokered]]:
    """Makes a placement with so many nodes; `path` is where its processes find modules before all others."""
    made: list[Brokered] = []

    def make(nodes: int = 2, *, path: Path | None = None) -> Brokered:
        monkeypatch.setenv("PYTHONPATH", ":".join(map(str, [*([path] if path else []), ROOT])))
        command = [sys.executable, "-P", "-m", "ratchet.placement.processes", str(nodes)]
        made.append(Brokered(command, str(tmp_path / "cache")))
        return made[-1]

    yield make
    for each in made:
        each.close()
