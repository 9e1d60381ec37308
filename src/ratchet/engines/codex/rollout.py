"""Reading the rollout, the file in which Codex records a session: it tells what its events leave out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.kernel import Usage

_SANDBOX_ERROR = "bwrap: "


class Rollout:
    """Follows the file while it grows. What is in it already belongs to the sessions that are resumed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path: Path | None = None
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
    def path(self) -> Path | None:
        """The file, once there is one."""
        if self._path is None:
            self._path = next(iter(sorted(self._directory.glob("*/*/*/rollout-*.jsonl"))), None)
        return self._path

    def read(self) -> None:
        """Take in the lines that came since; after the session, when the file is gone, there are none."""
        if self.path is None:
            return
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                whole, end, _rest = file.read().rpartition(b"\n")
        except FileNotFoundError:
            # Asked for rather than looked for first: the directory may be on its way out.
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
                hint="`ratchet engine check codex` tells whether its sandbox works here",
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
