"""A text with values in its places."""

from __future__ import annotations

import json
import re
from typing import Any

_PLACE = re.compile(r"\{\{\s*([\w.-]+)\s*\}\}")


def run(template: str, values: dict[str, Any]) -> dict[str, Any]:
    """`{{ name }}` is a place, and `{{ order.lines.0 }}` leads into a value. A place without a value is an error."""
    return {"text": _PLACE.sub(lambda place: _shown(_found(values, place.group(1))), template)}


def _found(values: Any, path: str) -> Any:
    found = values
    for part in path.split("."):
        if isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        elif isinstance(found, dict) and part in found:
            found = found[part]
        else:
            raise ValueError(f"there is no value for {{{{ {path} }}}}")
    return found


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
