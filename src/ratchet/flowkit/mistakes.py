"""Slips that would otherwise pass for a literal or for a key that nobody knows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from .dialects import OLD_KEYS
from .references import read_reference

_ALMOST_BARE = re.compile(r"(?:inputs|steps)\.\S+")
_ALMOST_INSIDE = re.compile(r"\$\{\s*(?:inputs?|steps?|items?|index)\b[^{}]*\}")
_OTHER_BRACES = re.compile(r"(?<![${])\{\{?\s*(?:inputs|steps)\.[^{}]*\}")
_STEP_KEYS = (
    *("step_id", "type", "description", "tool", "prompt_template", "tool_path", "generate_tool"),
    *("operation_type", "workflow_path", "workflow_spec", "input_mapping", "output_name", "timeout"),
    *("retry_on_failure", "max_retries", "parallel_group", "depends_on", "when", "for_each"),
    *("fallback_tool", "backoff_seconds", "cache"),
)
_WORKFLOW_KEYS = (
    *("workflow_id", "version", "description", "created_by", "created_at", "tags", "portable"),
    *("inputs", "outputs", "steps", "tools", "dependencies"),
)
_MEANT = {
    "step_type": "type",
    "tool_name": "tool",
    "prompt": "prompt_template",
    "inputs": "input_mapping",
    "needs": "depends_on",
    "condition": "when",
    "if": "when",
    "foreach": "for_each",
    "retries": "max_retries",
}


def unknown_keys(kind: Literal["workflow", "step"], extra: Mapping[str, Any]) -> Iterator[str]:
    """Keys that look like a slip of the pen for one that exists. Others, and `x-…`, are somebody's own."""
    for key in extra:
        meant = None if key.startswith("x-") else _meant(kind, key)
        if meant:
            yield f"there is no key {key!r}; did you mean {meant!r}?"


def mistaken_references(value: Any, *, items: bool = False) -> Iterator[str]:
    """Texts that look like a reference and are none."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, Mapping):
            waiting.extend(reversed(list(inner.values())))
        elif isinstance(inner, list | tuple):
            waiting.extend(reversed(inner))
        elif isinstance(inner, str):
            if _ALMOST_BARE.fullmatch(inner) and read_reference(inner, items=items) is None:
                yield f"{inner!r} looks like a reference and is none"
            yield from mistakes_inside(inner, items=items)


def mistakes_inside(text: str, *, items: bool = False) -> Iterator[str]:
    """Parts of a template that look like a reference and are none."""
    if "{" not in text:
        return
    for match in _ALMOST_INSIDE.finditer(text):
        escaped = text.startswith("$", match.start() - 1) and match.start() > 0
        if not escaped and read_reference(match[0], items=items) is None:
            yield f"{match[0]!r} looks like a reference and is none"
    for match in _OTHER_BRACES.finditer(text):
        yield f"{match[0]!r} is no reference; write ${{{match[0].strip('{} ')}}}"


@lru_cache(maxsize=1024)
def _meant(kind: Literal["workflow", "step"], key: str) -> str | None:
    if key in OLD_KEYS:
        return None
    if kind == "step" and key in _MEANT:
        return _MEANT[key]
    known = _STEP_KEYS if kind == "step" else _WORKFLOW_KEYS
    return next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.8)), None)
