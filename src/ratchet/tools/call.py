"""What a tool is called with, and what comes of it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ratchet.kernel import RatchetError
from ratchet.ledger import Spender

if TYPE_CHECKING:
    from ratchet.config.workflow_settings import Tools
    from ratchet.ledger import Transaction
    from ratchet.runtime import Runtime
    from ratchet.tools.mcp_tools import KeptServers

CALL_SECONDS = 300.0
_REFERENCE = re.compile(r"\$\{(\w+)\}|\$(\w+)")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What one call took, as it was measured; `None` where nothing can be measured.

    What `unpriced_tokens` of the tokens cost nobody knows: it is not in `cost_microusd`.
    """

    wall_ms: float = 0.0
    cpu_ms: float | None = None
    peak_bytes: int | None = None
    exit_code: int | None = None
    cost_microusd: int = 0
    tokens: int = 0
    unpriced_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered. `said` is the end of what it wrote to stderr; a `simulated` answer is a recording."""

    value: Any
    use: ToolUse = field(default_factory=ToolUse)
    said: str = ""
    simulated: bool = False


class ToolCallFailed(RatchetError):
    """A call that failed. `final` says that calling again cannot help: wrong input, no such program. `blocks`
    says that no call of its kind can succeed until a person changes something, such as a key.

    `result` is what a program had printed until then and how it ended, where there was one.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        use: ToolUse | None = None,
        said: str = "",
        final: bool = False,
        blocks: bool = False,
        result: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.use = use or ToolUse()
        self.said = said
        self.final = final
        self.blocks = blocks
        self.result = result


def no_listener(kind: str, data: Mapping[str, Any]) -> None:
    """The listener of a call that nothing listens to."""


class Answers(Protocol):
    """Knows what a model has answered at this place before, so that it is not paid for twice."""

    def find(self, prompt: str) -> ToolResult | None: ...

    def keep(self, tx: Transaction, prompt: str, called: ToolResult) -> None: ...


@dataclass(frozen=True, slots=True)
class Occasion:
    """On whose behalf a tool is called, how long it may take, and who listens.

    `listen` is given `("stderr", {"text": …})` as a tool writes it and `("token", {"text": …})` as a model says it; it
    may be called from any thread. `run_workflow` carries out a tool that is itself a workflow. `folder` is where
    relative paths start. `servers` keeps MCP servers for the next call; without it one is started for each.
    `answers` are those of an earlier process of the run. `give_line` takes each line of the answer as it comes, from
    any thread; only what is answered is sure. In the event loop of the call it may return something to wait for before
    the next line. What is called only to be `tried` is no use of a tool, and not on its record.
    """

    runtime: Runtime
    spender: Spender = field(default_factory=Spender)
    actor: str = "ratchet"
    seconds: float = CALL_SECONDS
    folder: Path | None = None
    listen: Callable[[str, Mapping[str, Any]], None] = no_listener
    servers: KeptServers | None = None
    answers: Answers | None = None
    run_workflow: Callable[[Mapping[str, Any], Mapping[str, Any]], Awaitable[ToolResult]] | None = None
    give_line: Callable[[Any], Awaitable[None] | None] | None = None
    tried: bool = False


class LineReader:
    """Cuts a text that comes in pieces into lines, and passes on each once it is whole. Returns what is to
    be waited for, if there is anything."""

    def __init__(
        self, give: Callable[[Any], Awaitable[None] | None], read: Callable[[str], Any] | None = None
    ) -> None:
        self._give = give
        self._read = read
        self._rest = ""

    def __call__(self, piece: str) -> Awaitable[None] | None:
        wait = None
        *lines, self._rest = (self._rest + piece).split("\n")
        for line in lines:
            # What cannot be read is no line; the answer as a whole is looked at anyway.
            with contextlib.suppress(ValueError):
                given = self._give(line.removesuffix("\r") if self._read is None else self._read(line))
                wait = given or wait
        return wait


def variable(name: str, settings: Tools) -> str:
    """The value of `name`. Raises `ToolCallFailed` if it is not allowed or not set."""
    if name not in (settings.variables or "").split():
        raise ToolCallFailed(
            f"no tool may be given the variable {name}",
            hint=f"add {name} to tools.variables in ratchet.toml, names apart by spaces, if this tool is to have it",
            final=True,
        )
    value = os.environ.get(name, "").strip()
    if not value:
        raise ToolCallFailed(f"the variable {name} is not set", hint=f"export {name}=…", final=True)
    return value


def filled_in(values: Mapping[str, str], settings: Tools) -> dict[str, str]:
    """The values with each `${NAME}` in them replaced. Raises `ToolCallFailed` as `variable` does."""
    return {
        name: _REFERENCE.sub(lambda found: variable(found[1] or found[2], settings), value)
        for name, value in values.items()
    }
