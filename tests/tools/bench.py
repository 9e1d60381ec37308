"""A place to call tools from: a runtime on a file of its own, and everything that is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.runtime import Runtime
from ratchet.tools.call import Occasion, ToolCallFailed, ToolResult
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Tool, read_tool


@dataclass
class Bench:
    runtime: Runtime
    folder: Path
    heard: list[tuple[str, str]] = field(default_factory=list)

    def occasion(self, **more: Any) -> Occasion:
        return replace(Occasion(self.runtime, seconds=60.0, folder=self.folder, listen=self._hear), **more)

    def call(self, tool: Tool, values: Mapping[str, Any] | None = None, **more: Any) -> ToolResult:
        return asyncio.run(call_tool(tool, values or {}, self.occasion(**more)))

    def fails(self, tool: Tool, values: Mapping[str, Any] | None = None, **more: Any) -> ToolCallFailed:
        with pytest.raises(ToolCallFailed) as failed:
            self.call(tool, values, **more)
        return failed.value

    def said(self, kind: str = "stderr") -> str:
        return "".join(text for each, text in self.heard if each == kind)

    def _hear(self, kind: str, data: Mapping[str, Any]) -> None:
        self.heard.append((kind, data["text"]))


def python_tool(source: str, **more: Any) -> Tool:
    return read_tool({"type": "python", "python": {"source": source}, **more}, folder=None, id="node")


def program(*words: str, folder: Path | None = None, install: str | None = None, **more: Any) -> Tool:
    body = {"command": words[0], "args": list(words[1:]), "install_command": install}
    return read_tool({"type": "executable", "executable": body, **more}, folder=folder, id="program")
