"""Sessions that were written by hand, for engines that cost money otherwise. Whoever plays one is marked as simulated.

`tests/demo/recording.py` writes them.
"""

from __future__ import annotations

from pathlib import Path

RECORDED = "No model was asked: what the engine said and wrote is a recording that comes with Ratchet"


def recorded_engine(name: str) -> str:
    """The engine that plays the recording of that name, in any process of this machine."""
    return f"replay:{Path(__file__).parent / name}.jsonl"
