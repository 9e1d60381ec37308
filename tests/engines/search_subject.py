"""Asking the search engine, and small programs to ask it about."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ratchet.engines import Engine, Request, Session

PROGRAM = """\
import math

RATE = 0.1  # search: 0.001..1.0 log
DEPTH = 3  # search: 1..8
KERNEL = "rbf"  # search: "rbf" | "linear" | "poly"
OFFSET = -2.5  # search: -5.0..5.0
OTHER = 17
"""


def ask(engine: Engine, workspace: Path, resume: str | None = None, **data: Any) -> Session:
    return asyncio.run(engine.propose(Request("", workspace=workspace, resume=resume, data=data)))


def program(directory: Path, text: str = PROGRAM, name: str = "model.py") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def values(path: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(path.read_bytes(), str(path), "exec"), names)
    return names
