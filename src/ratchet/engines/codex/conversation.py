"""Understanding the events of `codex exec --json`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from ratchet.engines.codex.rollout import usage_of
from ratchet.engines.session import EventKind
from ratchet.engines.transcript import Transcript
from ratchet.kernel import Usage

# Lines that are no events and are noted all the same.
_STRANGE = 100


class Conversation:
    """What was said and done so far, each thing told to the transcript as it comes."""

    def __init__(self, transcript: Transcript, hide: Callable[[str], str]) -> None:
        self.transcript = transcript
        self._hide = hide
        self.thread: str | None = None
        self.text = ""
        self.worked = False
        self.completed = False
        self.usage: Usage | None = None
        """Of the whole thread, once its turn is completed."""
        self.error: str | None = None
        self._strange = 0
        self._under_way: set[str] = set()
        self._heard_at = time.monotonic()

    @property
    def silent_seconds(self) -> float:
        """How long nothing was heard, though no command or tool was at work that could take its time."""
        return 0.0 if self._under_way else time.monotonic() - self._heard_at

    def hear(self, line: bytes) -> None:
        """Take one line of output. A line that is no event is noted and changes nothing."""
        self._heard_at = time.monotonic()
        text = self._hide(line.decode(errors="replace")).strip()
        if not text:
            return
        try:
            event = json.loads(text)
        except ValueError:
            event = None
        if isinstance(event, dict):
            self._take(event)
            return
        self._strange += 1
        if self._strange <= _STRANGE:
            self.transcript.say(EventKind.NOTE, text)

    def _take(self, event: dict[str, Any]) -> None:
        match event:
            case {"type": "thread.started", "thread_id": str(thread)}:
                self.thread = thread
                self.transcript.say(EventKind.STARTED, data={"thread": thread})
            case {"type": "turn.completed"}:
                self.completed = True
                if isinstance(tokens := event.get("usage"), dict):
                    self.usage = usage_of(tokens)
            case {"type": "turn.failed"}:
                self.error = _message(event.get("error"))
            case {"type": "error"}:
                self._trouble(_message(event))
            case {"type": "item.started", "item": {"type": str(kind)} as item}:
                self._begin(kind, item)
            case {"type": "item.completed", "item": {"type": str(kind)} as item}:
                self._end(kind, item)

    def _trouble(self, message: str) -> None:
        """Not the end of it: only `turn.failed` and the exit code are."""
        if message.startswith("Reconnecting"):
            self.transcript.say(EventKind.RETRY, message)
        else:
            self.transcript.say(EventKind.NOTE, message)

    def _begin(self, kind: str, item: dict[str, Any]) -> None:
        self.worked = True
        self._under_way.add(str(item.get("id")))
        say = self.transcript.say
        if kind == "command_execution":
            say(EventKind.TOOL_CALL, str(item.get("command", "")), {"id": item.get("id"), "tool": "command"})
        elif kind == "mcp_tool_call":
            data = {"id": item.get("id"), "tool": _tool(item), "arguments": item.get("arguments")}
            say(EventKind.TOOL_CALL, _tool(item), data)

    def _end(self, kind: str, item: dict[str, Any]) -> None:
        say = self.transcript.say
        if kind == "error":
            say(EventKind.NOTE, _message(item))
            return
        self.worked = True
        self._under_way.discard(str(item.get("id")))
        text = str(item.get("text") or "")
        match kind:
            case "agent_message":
                self.text = text
                say(EventKind.MESSAGE, text)
            case "reasoning":
                say(EventKind.REASONING, text)
            case "command_execution":
                data = {name: item.get(name) for name in ("id", "exit_code", "status")}
                say(EventKind.TOOL_RESULT, str(item.get("aggregated_output") or ""), data)
            case "mcp_tool_call":
                data = {"id": item.get("id"), "tool": _tool(item), "status": item.get("status")}
                say(EventKind.TOOL_RESULT, _result(item), data)
            case "file_change":
                changes = [each for each in item.get("changes") or () if isinstance(each, dict)]
                told = ", ".join(f"{each.get('kind')} {each.get('path')}" for each in changes)
                say(EventKind.FILE_CHANGE, told, {"changes": changes, "status": item.get("status")})
            case _:
                say(EventKind.NOTE, kind, item)


def _message(holder: Any) -> str:
    message = holder.get("message") if isinstance(holder, dict) else None
    return message if isinstance(message, str) else json.dumps(holder)


def _tool(item: dict[str, Any]) -> str:
    return f"{item.get('server')}.{item.get('tool')}"


def _result(item: dict[str, Any]) -> str:
    if item.get("error"):
        return _message(item["error"])
    result = item.get("result")
    content = result.get("content") if isinstance(result, dict) else None
    parts = content if isinstance(content, list) else []
    return "\n".join(str(each["text"]) for each in parts if isinstance(each, dict) and "text" in each)
