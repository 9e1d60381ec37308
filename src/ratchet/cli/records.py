"""Printing JSON."""

from __future__ import annotations

import json
from typing import Any


def print_document(document: Any) -> None:
    """One JSON document, laid out for reading."""
    print(json.dumps(document, indent=2, default=str))


def print_line(document: Any) -> None:
    """One JSON document on one line, at once: somebody may be waiting for it."""
    print(json.dumps(document, separators=(",", ":"), default=str), flush=True)
