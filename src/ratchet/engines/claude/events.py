"""The events of a session: what the SDK reports is recorded and counted, and what decides the end is kept."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ContentBlock,
    HookMatcher,
    Message,
    RateLimitEvent,
    ResultMessage,
    SdkMcpTool,
    StreamEvent,
    SystemMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
    create_sdk_mcp_server,
)
from claude_agent_sdk.types import McpSdkServerConfig

from ratchet.engines.claude.environment import OURS
from ratchet.engines.engine import EngineTool, EventKind, Failure, Fault, Guard, Request, Transcript, abridged
from ratchet.engines.program import check_budget
from ratchet.kernel import Usage

EDITS = frozenset({"Write", "Edit", "NotebookEdit"})
"""The built-in tools that change files by themselves."""


def own_server(tools: tuple[EngineTool, ...]) -> McpSdkServerConfig:
    return create_sdk_mcp_server(
        OURS,
        tools=[
            SdkMcpTool(
                name=tool.name,
                description=tool.description,
                input_schema=dict(tool.input_schema),
                handler=_handler(tool),
            )
            for tool in tools
        ],
    )


def guarding(guard: Guard, denied: Callable[[str, str, Any, str], None]) -> HookMatcher:
    """A hook that asks `guard`, and forbids what it could not be asked about."""

    async def ask(reported: Any, call: str | None, _context: Any) -> Any:
        name, arguments = str(reported["tool_name"]), reported["tool_input"]
        reason = await guard(name, arguments)
        if reason is None:
            return {}
        denied(call or "", name, arguments, reason)
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            }
        }

    return HookMatcher(hooks=[ask], on_failure="block")


def _handler(tool: EngineTool) -> Callable[[Any], Awaitable[dict[str, Any]]]:
    async def handle(arguments: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await tool.run(arguments)}]}

    return handle


_LONGEST = 4096


def hidden(value: Any, hide: Callable[[str], str]) -> Any:
    """`value` with `hide` applied to every text in it, and no text longer than an event should carry."""
    match value:
        case str():
            return abridged(hide(value), _LONGEST)
        case Mapping():
            return {str(key): hidden(each, hide) for key, each in value.items()}
        case list() | tuple():
            return [hidden(each, hide) for each in value]
    return value


def plain(content: str | list[dict[str, Any]] | None) -> str:
    """The text of a tool's result; pictures are only named."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)


class Tally:
    """The tokens of every request of a session.

    A request tells its input when it begins and its output when it ends. Helpers of the model have requests of their
    own at the same time, told apart by the call that started them.
    """

    def __init__(self) -> None:
        self._finished = Usage()
        self._open: dict[str | None, Usage] = {}

    def begin(self, helper: str | None, reported: Any) -> None:
        self._finished += self._open.pop(helper, Usage())
        self._open[helper] = _tokens(reported)

    def update(self, helper: str | None, reported: Any) -> None:
        self._open[helper] = larger(self._open.get(helper, Usage()), _tokens(reported))

    @property
    def total(self) -> Usage:
        return sum(self._open.values(), self._finished)


def larger(one: Usage, other: Usage) -> Usage:
    return Usage(**{f.name: max(getattr(one, f.name), getattr(other, f.name)) for f in fields(Usage)})


def billed(models: Iterable[Mapping[str, Any]], cost_usd: float | None) -> Usage:
    """What the program says that a session used, over all its models. Its own sum leaves some requests out."""
    total = Usage(cost_microusd=_microdollars(cost_usd))
    for each in models:
        read = _count(each.get("cacheReadInputTokens"))
        total += Usage(
            input_tokens=_count(each.get("inputTokens"))
            + _count(each.get("cacheCreationInputTokens"))
            + read,
            cached_tokens=read,
            output_tokens=_count(each.get("outputTokens")),
        )
    return total


def _tokens(reported: Any) -> Usage:
    if not isinstance(reported, Mapping):
        return Usage()
    read = _count(reported.get("cache_read_input_tokens"))
    return Usage(
        input_tokens=_count(reported.get("input_tokens"))
        + _count(reported.get("cache_creation_input_tokens"))
        + read,
        cached_tokens=read,
        output_tokens=_count(reported.get("output_tokens")),
    )


def _count(value: Any) -> int:
    """A number as an endpoint told it, which may be anything."""
    return max(0, value) if isinstance(value, int) else 0


def _microdollars(dollars: float | None) -> int:
    return round(dollars * 1_000_000) if dollars and math.isfinite(dollars) and dollars > 0 else 0


# The model name of what the program says in the place of a model, such as an error of the endpoint.
_NOBODY = "<synthetic>"
_STDERR = 4096


class ClaudeEvents:
    """What was heard of one session. `enough` is set when it must be ended, and `fault` then says why."""

    def __init__(
        self,
        request: Request,
        transcript: Transcript,
        *,
        ends_at: float,
        workspace: Path | None,
        hide: Callable[[str], str],
    ) -> None:
        self.text = ""
        self.model: str | None = None
        self.worked = False
        self.spoke = False
        self.retry_after: float | None = None
        self.denied: dict[str, dict[str, Any]] = {}
        self.result: ResultMessage | None = None
        self.stderr = ""
        self.enough = asyncio.Event()
        self.fault: Fault | None = None
        self._request = request
        self._transcript = transcript
        self._ends_at = ends_at
        self._workspace = workspace
        self._hide = hide
        self._tally = Tally()
        self._calls: dict[str, ToolUseBlock] = {}
        self._asking: set[str | None] = set()
        self._heard_at = time.monotonic()

    @property
    def usage(self) -> Usage:
        """The tokens and the money so far."""
        if self.result is None:
            return self._tally.total
        models = (self.result.model_usage or {}).values()
        return larger(self._tally.total, billed(models, self.result.total_cost_usd))

    def say(self, kind: EventKind, text: str = "", data: Mapping[str, Any] | None = None) -> None:
        self._transcript.say(kind, self._hide(text), hidden(data or {}, self._hide))

    @property
    def quiet_since(self) -> float | None:
        """When the endpoint was last heard, if it is its turn to speak."""
        return self._heard_at if self._asking else None

    def hear(self, message: Message) -> None:
        self._heard_at = time.monotonic()
        match message:
            case StreamEvent():
                self._stream(message)
            case AssistantMessage() if message.model != _NOBODY:
                self.worked = self.spoke = True
                self.model = message.model
                for block in message.content:
                    self._spoken(block, message.parent_tool_use_id)
            case UserMessage(content=list(blocks)):
                for block in blocks:
                    self._answered(block, message.tool_use_result)
            case SystemMessage():
                self._system(message.subtype, message.data)
            case RateLimitEvent(rate_limit_info=info) if info.status == "rejected":
                self.retry_after = None if info.resets_at is None else max(0.0, info.resets_at - time.time())
                self.say(
                    EventKind.NOTE, f"the limit {info.rate_limit_type} is reached", {"until": info.resets_at}
                )
            case ResultMessage():
                self._ended(message)

    def hear_stderr(self, line: str) -> None:
        self.stderr = f"{self.stderr}{line}\n"[-_STDERR:]

    def deny(self, call: str, tool: str, arguments: Any, reason: str) -> None:
        """A tool was forbidden: the model and the listener get the reason."""
        if call not in self.denied:
            self.denied[call] = {"tool": tool, "input": arguments, "reason": reason}
            self.say(EventKind.NOTE, f"{tool} was denied: {reason}", {"denied": self.denied[call]})

    def end_with(self, fault: Fault) -> None:
        self.fault = self.fault or fault
        self.enough.set()

    def _ended(self, result: ResultMessage) -> None:
        self.result = result
        self._report_usage()
        for each in result.permission_denials or []:
            if isinstance(each, dict):
                call, tool = str(each.get("tool_use_id")), str(each.get("tool_name"))
                self.deny(call, tool, each.get("tool_input"), "it is not permitted")

    def _stream(self, message: StreamEvent) -> None:
        event, helper = message.event, message.parent_tool_use_id
        if event.get("type") == "message_stop":
            self._asking.discard(helper)
        elif event.get("type") == "message_start":
            self.worked = True
            self._asking.add(helper)
            self._tally.begin(helper, event.get("message", {}).get("usage"))
        elif event.get("type") == "message_delta":
            self._tally.update(helper, event.get("usage"))
            self._report_usage()
        if fault := check_budget(self._request, self._tally.total):
            self.end_with(fault)

    def _spoken(self, block: ContentBlock, helper: str | None) -> None:
        match block:
            case TextBlock(text=text):
                if helper is None:
                    self.text = text
                self.say(EventKind.MESSAGE, text, {"helper": helper} if helper else {})
            case ThinkingBlock(thinking=text):
                self.say(EventKind.REASONING, text)
            case ToolUseBlock(id=call, name=name, input=arguments):
                self._calls[call] = block
                self.say(EventKind.TOOL_CALL, name, {"call": call, "input": arguments})

    def _answered(self, block: ContentBlock, whole: Any) -> None:
        if isinstance(block, TextBlock):
            # The program itself speaks to the model, to have an answer that was cut off continued.
            self.say(EventKind.NOTE, block.text)
        if not isinstance(block, ToolResultBlock):
            return
        used = self._calls.pop(block.tool_use_id, None)
        name = used.name if used else "?"
        self.say(
            EventKind.TOOL_RESULT,
            plain(block.content),
            {"call": block.tool_use_id, "tool": name, "failed": bool(block.is_error)},
        )
        if used and name in EDITS and not block.is_error:
            change = whole.get("type", "update") if isinstance(whole, dict) else "update"
            path = str(used.input.get("file_path") or used.input.get("notebook_path") or "?")
            self.say(EventKind.FILE_CHANGE, self._inside(path), {"change": change})

    def _system(self, subtype: str, data: Mapping[str, Any]) -> None:
        match subtype:
            case "init":
                self.model = data.get("model")
            case "status" if data.get("status") == "requesting":
                self._asking.add(None)
            case "api_retry":
                self._retry(data)
            case "permission_denied":
                call = str(data.get("tool_use_id"))
                used = self._calls.get(call)
                reason = str(data.get("decision_reason") or data.get("message"))
                self.deny(call, str(data.get("tool_name")), used.input if used else {}, reason)
            case "informational" | "compact_boundary":
                self.say(EventKind.NOTE, str(data.get("content") or subtype))

    def _retry(self, data: Mapping[str, Any]) -> None:
        seconds, status = float(data.get("retry_delay_ms") or 0) / 1000, data.get("error_status")
        why = f"the endpoint answered {status}" if status else f"the endpoint failed ({data.get('error')})"
        self.say(
            EventKind.RETRY,
            f"{why}; trying again in {seconds:.1f} s",
            {
                "attempt": data.get("attempt"),
                "of": data.get("max_retries"),
                "status": status,
                "seconds": seconds,
                "reason": why,
            },
        )
        self.retry_after = seconds if status == 429 else None
        self._heard_at += seconds
        if time.monotonic() + seconds > self._ends_at:
            self.end_with(
                Fault(
                    Failure.RATE_LIMITED if status in (429, 529) else Failure.CRASHED,
                    f"{why} and is to be asked again in {seconds:.0f} s, which is after the deadline",
                    hint="try again later, or raise engines.deadline_seconds",
                    retry_after=seconds,
                )
            )

    def _report_usage(self) -> None:
        used = asdict(self.usage)
        shown = {name: value for name, value in used.items() if name != "wall_ms"}
        self.say(EventKind.USAGE, data={"model": self.model, **shown})

    def _inside(self, path: str) -> str:
        """A path as people know it: from the workspace on, where it is inside."""
        if self._workspace is None or not Path(path).is_relative_to(self._workspace):
            return path
        return str(Path(path).relative_to(self._workspace))
