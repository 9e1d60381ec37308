"""Keeping the place of a workspace out of a cassette: another one stands there when the session is replayed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_OPEN = "⟨"
_ESCAPED = "⟨⟨"


class Placeholder:
    """Writes `⟨workspace⟩` for the path of a workspace, in any text, and back.

    A path is looked for as it is and as it is written inside of JSON, and so is the path behind its symlinks.
    """

    def __init__(self, workspace: Path | None) -> None:
        self._paths = {} if workspace is None else _spellings(workspace)
        names = {path: name for name, path in reversed(self._paths.items())}
        found = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        self._names = names
        self._hidden = re.compile(rf"{_OPEN}|(?:{found})(?![\w-])" if names else _OPEN)
        self._shown = re.compile(rf"{_ESCAPED}|{_OPEN}(workspace[a-z:]*)⟩")

    def hide(self, value: Any) -> Any:
        """`value`, a JSON value, without the path in any of its texts."""
        return _mapped(value, self._hide)

    def show(self, value: Any) -> Any:
        """What was hidden, with the path of this workspace in the place of the other."""
        return _mapped(value, self._show)

    def _hide(self, text: str) -> str:
        return self._hidden.sub(
            lambda found: f"⟨{self._names[found[0]]}⟩" if found[0] != _OPEN else _ESCAPED, text
        )

    def _show(self, text: str) -> str:
        return self._shown.sub(
            lambda found: _OPEN if found[0] == _ESCAPED else self._paths.get(found[1], found[0]), text
        )


def _spellings(workspace: Path) -> dict[str, str]:
    """Name of a placeholder to what it stands for."""
    plain, real = str(workspace.absolute()), str(workspace.resolve())
    return {
        "workspace": plain,
        "workspace:real": real,
        "workspace:json": json.dumps(plain)[1:-1],
        "workspace:real:json": json.dumps(real)[1:-1],
    }


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case Mapping():
            return {change(str(key)): _mapped(item, change) for key, item in value.items()}
        case list() | tuple():
            return [_mapped(item, change) for item in value]
        case None | bool() | int() | float():
            return value
        case _:
            return change(str(value))
