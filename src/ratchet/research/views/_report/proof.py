"""What the best changed, and what shows that it is better."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ratchet.research.views._report.markup import Markup, joined, tag

_LINES = 2000
_LINE = 400
_CERTIFICATE = 60_000
_CLASSES = {"+": "plus", "-": "minus", "@": "hunk"}


def difference(diff: str) -> Markup:
    """A diff with its lines marked. A very long one is cut, and says so."""
    lines = diff.splitlines()
    shown = [_line(each) for each in lines[:_LINES]]
    parts = [tag("div", tag("pre", joined(shown)), class_="wide")]
    if len(lines) > _LINES:
        parts.append(tag("p", f"{len(lines) - _LINES:,} more lines are not shown.", class_="soft"))
    return joined(parts)


def certificate(found: Mapping[str, Any]) -> Markup:
    written = json.dumps(found, indent=2, ensure_ascii=False, default=str)
    cut = written[:_CERTIFICATE] + ("\n…" if len(written) > _CERTIFICATE else "")
    return tag("div", tag("pre", cut), class_="wide")


def _line(line: str) -> Markup:
    shown = line if len(line) <= _LINE else f"{line[:_LINE]}…"
    kind = _CLASSES.get(line[:1])
    return tag("span", shown, class_=kind) if kind else tag("span", shown)
