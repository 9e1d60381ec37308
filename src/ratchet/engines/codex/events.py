"""The events of `codex exec --json`, and the rollout file in which Codex records a session."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratchet.engines.engine import EventKind, Failure, Fault, Transcript
from ratchet.engines.session_home import ForeignFile
from ratchet.kernel import Usage, decoded

_SANDBOX_ERROR = "bwrap: "
_MOST_AT_ONCE = 64 * 1024 * 1024


class Rollout:
    """Follows the file while it grows. What is in it already belongs to the sessions that are resumed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file: ForeignFile | None = None
        self._offset = 0
        self._total = self._before = Usage()
        self.model: str | None = None
        self.reason: Any = None
        """Why the turn failed, in a form that a machine can read."""
        self._done = 0
        self._complaint: str | None = None
        self.read()
        self._before = self._total
        self._done, self._complaint = 0, None

    @property
    def used(self) -> Usage:
        return self.since_resumed(self._total)

    def since_resumed(self, total: Usage) -> Usage:
        """What is left of `total`, which counts over the whole thread, without the sessions that are resumed."""
        before = self._before
        return Usage(
            input_tokens=max(0, total.input_tokens - before.input_tokens),
            cached_tokens=max(0, total.cached_tokens - before.cached_tokens),
            output_tokens=max(0, total.output_tokens - before.output_tokens),
        )

    @property
    def file(self) -> ForeignFile | None:
        """The file, once there is one."""
        if self._file is None and (found := sorted(self._directory.glob("*/*/*/rollout-*.jsonl"))):
            self._file = ForeignFile(self._directory, found[0])
        return self._file

    def read(self) -> None:
        """Take in the lines that came since; after the session, when the file is gone, there are none."""
        if self.file is None:
            return
        try:
            with self.file.open() as file:
                file.seek(self._offset)
                whole, end, _rest = file.read(_MOST_AT_ONCE).rpartition(b"\n")
        except OSError:
            # Asked for rather than looked for first: the directory may be on its way out, or a command has put
            # something else in its place.
            return
        self._offset += len(whole) + len(end)
        for line in whole.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # Codex died while it wrote this line
            if isinstance(record, dict) and isinstance(payload := record.get("payload"), dict):
                self._take(str(record.get("type")), payload)

    def check_sandbox(self) -> None:
        """Raise `Fault` if commands were asked for and none could be started: Codex itself does not mind."""
        if self._complaint is not None and not self._done:
            raise Fault(
                Failure.CRASHED,
                f"no command of the session could be started: {self._complaint}",
                hint="`ratchet engine check codex` says whether its sandbox works here",
            )

    def _take(self, kind: str, payload: dict[str, Any]) -> None:
        if kind == "token_usage_record":
            self._count(payload.get("thread_token_usage"))
        elif kind == "turn_context":
            model = payload.get("model")
            self.model = model if isinstance(model, str) else self.model
        elif kind == "response_item":
            self._look_at_output(payload)
        elif kind == "event_msg":
            self._hear(payload)

    def _hear(self, payload: dict[str, Any]) -> None:
        match payload.get("type"):
            case "token_count":
                info = payload.get("info")
                self._count(info.get("total_token_usage") if isinstance(info, dict) else None)
            case "task_started":
                self.reason = None
            case "task_complete":
                error = payload.get("error")
                self.reason = error.get("codex_error_info") if isinstance(error, dict) else None
            case "item_completed":
                item = payload.get("item")
                if isinstance(item, dict) and _was_done(item):
                    self._done += 1

    def _look_at_output(self, payload: dict[str, Any]) -> None:
        if payload.get("type") not in ("function_call_output", "custom_tool_call_output"):
            return
        output = payload.get("output")
        text = output if isinstance(output, str) else json.dumps(output).replace("\\n", "\n")
        for line in text.splitlines():
            if line.startswith(_SANDBOX_ERROR):
                self._complaint = line.strip()

    def _count(self, tokens: Any) -> None:
        if isinstance(tokens, dict):
            self._total = usage_of(tokens)


def _was_done(item: dict[str, Any]) -> bool:
    """Whether this is something that was carried out. A sandbox that failed at times looks like a command that did."""
    if item.get("type") == "CommandExecution":
        said = str(item.get("aggregated_output") or "")
        return item.get("exit_code") == 0 or not said.startswith(_SANDBOX_ERROR)
    return item.get("type") == "FileChange"


def usage_of(tokens: dict[str, Any]) -> Usage:
    """What Codex counts, as `Usage`. Anything that is not a count counts as none."""

    def number(name: str) -> int:
        value = tokens.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

    return Usage(
        input_tokens=number("input_tokens"),
        cached_tokens=number("cached_input_tokens"),
        output_tokens=number("output_tokens"),
    )


# Lines that are no events and are noted all the same.
_STRANGE = 100


class CodexEvents:
    """What was said and done so far, each thing added to the transcript as it comes."""

    def __init__(self, transcript: Transcript, hide: Callable[[str], str]) -> None:
        self.transcript = transcript
        self._hide = hide
        self.thread: str | None = None
        self.text = ""
        self.worked = False
        self.waits = False
        """Whether the model server asked for a pause, which Codex makes by itself."""
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
        text = self._hide(decoded(line)).strip()
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
            # Codex keeps to a Retry-After by itself and does not say how long that is.
            self.waits = "429" in message or "rate limit" in message.lower()
            reason = "the model server asked to wait; Codex retries by itself: " if self.waits else ""
            self.transcript.say(EventKind.RETRY, f"{reason}{message}")
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
                listed = ", ".join(f"{each.get('kind')} {each.get('path')}" for each in changes)
                say(EventKind.FILE_CHANGE, listed, {"changes": changes, "status": item.get("status")})
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
