"""What things are called: ids, names, moments and fingerprints; and text from outside: read, shown and shortened."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NewType, Protocol, runtime_checkable

ProjectId = NewType("ProjectId", int)
RunId = NewType("RunId", int)
StepId = NewType("StepId", int)
AttemptId = NewType("AttemptId", int)
JobId = NewType("JobId", int)
EventId = NewType("EventId", int)

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?", re.ASCII)


def new_id(prefix: str) -> str:
    """A short random id that nothing else has, such as `worker-5f1c09a2d3b4`."""
    return f"{prefix}-{secrets.token_hex(6)}"


def is_name(text: str) -> bool:
    """Whether `text` may name a thing: it is safe as a path segment, a branch and a URL part."""
    return _NAME.fullmatch(text) is not None and ".." not in text


def exp_id(number: int) -> str:
    """How a trial is called where people read: at least three digits, 000 being the baseline."""
    return f"{number:03}"


def dollars(amount: float) -> str:
    """An amount of money as people read it. One that is not nothing is never shown as nothing."""
    if 0 < amount < 0.0001:
        return "under $0.0001"
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def iso(milliseconds: int) -> str:
    """Whole milliseconds since 1970 as `2026-07-31T20:11:44.123Z`."""
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@runtime_checkable
class Hashed(Protocol):
    """A value that is known by its content, wherever it lies."""

    @property
    def sha256(self) -> str: ...


def fingerprint(kind: str, **parts: object) -> str:
    """What decides, as one SHA-256 over `parts` that is the same in every process."""
    text = json.dumps([kind, _plain(parts)], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """`value` as JSON has it. What it cannot have is refused by `json` later on."""
    if isinstance(value, Hashed):
        return value.sha256
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, Set):
        return sorted(str(item) for item in value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


_REPLACED = "replace"
_EXACT = "surrogateescape"


def decoded(content: bytes | bytearray) -> str:
    """What a program wrote, to be read by people; what is not UTF-8 becomes the replacement character."""
    return content.decode("utf-8", _REPLACED)


def text_decoder() -> codecs.IncrementalDecoder:
    """`decoded` for content that comes in pieces, whose ends may be inside a character."""
    return codecs.getincrementaldecoder("utf-8")(_REPLACED)


def exact_text(content: bytes) -> str:
    """Text of which `exact_bytes` makes the same bytes again, such as the name of a file or a patch."""
    return content.decode("utf-8", _EXACT)


def exact_bytes(text: str) -> bytes:
    """The bytes that `exact_text` was given."""
    return text.encode("utf-8", _EXACT)


def sendable(text: str) -> str:
    """`text` with `?` for each half of a surrogate pair, which no file, database or client can be given."""
    return text.encode("utf-8", _REPLACED).decode("utf-8")


def shortened(text: str, most: int) -> str:
    """At most `most` characters of `text`, the last of which is `…` if there are more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def first_line(text: str) -> str:
    """The first line that is not empty, without the space around it."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def last_line(text: str) -> str:
    """The last line that is not empty, without the space around it: where a program says why it ended."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
