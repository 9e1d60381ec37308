"""Numbers and ids as text: read strictly, written as the format has them."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime

from ratchet.kernel import exp_id

# A row for each number up to the highest would have to fit into the ledger.
HIGHEST = 10_000_000
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_ID = re.compile(r"(?:exp[_ -]?)?0*(\d{1,9})", re.ASCII | re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


def read_number(text: str) -> float | None:
    """A finite decimal number, or nothing."""
    if len(text) > 400 or _NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def read_id(text: str) -> int | None:
    """The number of a trial, however it is written: 75, 075 or exp_075. Nothing for any other text."""
    found = _ID.fullmatch(text.strip())
    number = HIGHEST if found is None else int(found[1])
    return number if number < HIGHEST else None


def read_time(text: str) -> int | None:
    """Milliseconds since 1970, or nothing."""
    if _TIME.fullmatch(text) is None:
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None


def score_text(score: float | None) -> str:
    return "" if score is None else f"{score:.6f}"


def id_text(number: int | None) -> str:
    return "" if number is None else exp_id(number)


def time_text(at: int | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
