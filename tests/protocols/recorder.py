"""Engines as somebody else would bring them.

`recorder:NAME` is the engine NAME, with its sessions on a cassette; `player:FILE` plays a cassette whatever is asked.
"""

from __future__ import annotations

from pathlib import Path

from ratchet.engines import Engine
from ratchet.engines.registry import EngineContext, open_engine
from ratchet.engines.replay import Recording, ReplayEngine


def open_recorder(surroundings: EngineContext, option: str) -> Engine:
    return Recording(open_engine(option, surroundings), cassette(surroundings.home, option))


def open_player(_: EngineContext, option: str) -> Engine:
    return ReplayEngine(Path(option), strict=False)


def cassette(home: Path, engine: str) -> Path:
    return home / "cassettes" / f"{engine}.jsonl"


def announce(site: Path) -> None:
    """Put them into a directory of packages, as an installation would."""
    information = site / "recordings_of_tests-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: recordings-of-tests\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        f"[ratchet.engines]\nrecorder = {__name__}:open_recorder\nplayer = {__name__}:open_player\n"
    )
