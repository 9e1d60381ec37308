"""Finds the JSON in what an engine said that knows no schemas: bare, fenced, or anywhere in prose."""

from __future__ import annotations

import re
from typing import Any

from ratchet.flowkit.jsontext import decoder

_OPENING = re.compile(r'\{\s*"')
_MOST_FAULTS = 100


def find_object(text: str, key: str) -> dict[str, Any]:
    """The last object in `text` that has `key`. Raises `ValueError` with what is wrong when there is none."""
    read = decoder(strict=False).raw_decode
    found: dict[str, Any] | None = None
    faults: list[str] = []
    end = 0
    for opening in _OPENING.finditer(text):
        if opening.start() < end or len(faults) == _MOST_FAULTS:
            continue
        try:
            value, end = read(text, opening.start())
        except RecursionError:
            faults.append("it is nested too deeply")
        except ValueError as error:
            faults.append(str(error))
        else:
            found = value if key in value else found
    if found is not None:
        return found
    if faults:
        raise ValueError(f"the JSON of the answer is broken: {faults[0][:200]}")
    raise ValueError(f"the answer has no JSON object with {key} in it: {text.strip()[:200] or 'nothing'!r}")
