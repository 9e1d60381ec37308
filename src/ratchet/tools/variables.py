"""Variables of the environment that a definition may ask for: only those that the settings allow.

Whoever wrote a definition also wrote where the value goes, so naming a variable there is not enough.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ratchet.config.workflow_settings import Tools
from ratchet.tools.call import ToolFailed

_REFERENCE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


def variable(name: str, settings: Tools) -> str:
    """The value of `name`. Raises `ToolFailed` if it is not allowed or not set."""
    if name not in (settings.variables or "").split():
        raise ToolFailed(
            f"no tool may be given the variable {name}",
            hint=f"add {name} to tools.variables in ratchet.toml, if this tool is to have it",
            final=True,
        )
    value = os.environ.get(name, "").strip()
    if not value:
        raise ToolFailed(f"the variable {name} is not set", hint=f"export {name}=…", final=True)
    return value


def filled_in(values: Mapping[str, str], settings: Tools) -> dict[str, str]:
    """The values with each `${NAME}` in them replaced. Raises `ToolFailed` as `variable` does."""
    return {
        name: _REFERENCE.sub(lambda found: variable(found[1] or found[2], settings), value)
        for name, value in values.items()
    }
