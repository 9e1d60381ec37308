"""An interceptor that takes its process along when the answer of a tool is there, once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.tools.call import ToolCallFailed, ToolResult
from ratchet.tools.definition import Tool
from tests.runtime.deaths import pass_by

HOME = "HOME_OF_DEATHS"


class Reaper:
    place = 50

    def before(self, tool: Tool, values: Mapping[str, Any]) -> None: ...

    def after(self, tool: Tool, values: Mapping[str, Any], outcome: ToolResult | ToolCallFailed) -> None:
        pass_by(Path(os.environ[HOME]), f"{tool.id} answered")
