"""Conversations that can go on: what was said, kept for some days under a name of its own.

A conversation is never changed. Going on with one makes another, so that the same request can be made twice.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.engines.failure import Failure
from ratchet.engines.llm.fault import CallFault

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})\.([0-9a-f]{24})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Conversation:
    system: str | None = None
    messages: list[ModelMessage] = field(default_factory=list)


class Conversations:
    """Files at `root/DAY/…json`. A whole day is dropped at once, so that keeping one costs the same for ever."""

    def __init__(
        self, root: Path, keep_days: int, *, today: Callable[[], datetime.date] | None = None
    ) -> None:
        self._root = root
        self._keep_days = keep_days
        self._today = today or (lambda: datetime.datetime.now(datetime.UTC).date())

    def load(self, name: str) -> Conversation:
        """Raises `CallFault` when there is no such conversation (any more), or none that can be read."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        # The name comes from outside and becomes a path.
        found = _NAME.fullmatch(name)
        if found is None:
            raise self._unknown(name)
        try:
            stored = json.loads((self._root / found[1] / f"{found[2]}.json").read_bytes())
            return Conversation(
                stored["system"], ModelMessagesTypeAdapter.validate_python(stored["messages"])
            )
        except FileNotFoundError:
            raise self._unknown(name) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CallFault(
                Failure.REFUSED,
                f"the conversation {name} cannot be read: {type(error).__name__}",
                hint="start a new one",
                worked=False,
            ) from None

    def _unknown(self, name: str) -> CallFault:
        return CallFault(
            Failure.REFUSED,
            f"there is no conversation {name!r}",
            hint=f"start a new one; they are kept for {self._keep_days} days (llm.resume_days)",
            worked=False,
        )

    def keep(self, conversation: Conversation, hide: Callable[[str], str]) -> str:
        """Store it, without what `hide` takes out, and return the name to resume it by."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        messages = ModelMessagesTypeAdapter.dump_python(conversation.messages, mode="json")
        text = json.dumps({"system": conversation.system, "messages": messages}, ensure_ascii=False)
        day, name = self._today().isoformat(), secrets.token_hex(12)
        self._prune()
        _write(self._root / day / f"{name}.json", hide(text))
        return f"{day}.{name}"

    def _prune(self) -> None:
        oldest = (self._today() - datetime.timedelta(days=self._keep_days)).isoformat()
        if not self._root.is_dir():
            return
        for day in self._root.iterdir():
            if _DAY.fullmatch(day.name) and day.name < oldest:
                # Another process may be at it as well.
                shutil.rmtree(day, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and for the owner only."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        # A model may leave half of a surrogate pair behind.
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
