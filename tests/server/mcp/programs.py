"""`ratchet mcp` in a process of its own, as clients start it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp import StdioServerParameters

SOURCE = Path(__file__).parents[3] / "src"


def environment() -> dict[str, str]:
    """That of a person who has nothing of ours in it."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("RATCHET_")}
    return {**kept, "PYTHONPATH": str(SOURCE)}


def command(home: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "ratchet.cli", "--home", str(home), "mcp", *options]


def over_stdio(home: Path, *options: str) -> StdioServerParameters:
    program, *arguments = command(home, *options)
    return StdioServerParameters(command=program, args=arguments, env=environment())
