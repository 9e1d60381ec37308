"""What a program that crashed had to say, in one line that points at the recipe."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from ratchet.sandbox.inside import __file__ as _sandbox

_READ_BYTES = 50_000
_MESSAGE_LENGTH = 200
_LINE_LENGTH = 2_000
_TRACEBACK = "Traceback (most recent call last)"
_FATAL = "Fatal Python error"
_FRAME = re.compile(r'^[\s|+]*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,? in (?P<where>\S.*))?$')
_RAISED = re.compile(r"^[\s|+]*(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
# What crashes are called where there is no traceback.
_NAMED = re.compile(
    rf"(?P<type>{_FATAL}|CUDA error|[\w.]*(?:Error|Exception|Failed|Unsupported)\b)[:\s]*(?P<message>.*)"
)
_SANDBOX = str(PurePosixPath(_sandbox).parent)

InRecipe = Callable[[str], str | None]
"""The path of a file in the recipe, given what a traceback calls it; `None` for one that is not part of it."""


class _Frame(NamedTuple):
    file: str
    line: int
    where: str

    def told(self, name: str) -> str:
        return f"({name}:{self.line} in {self.where})" if self.where else f"({name}:{self.line})"


def crash_excerpt(output: bytes, in_recipe: InRecipe, roots: Sequence[str] = ()) -> str:
    """`Type: message (file.py:3 in function)`, with the deepest frame in the recipe; empty if nothing was said.

    `roots` are directories whose names say nothing to whoever reads it.
    """
    text = output[-_READ_BYTES:].decode("utf-8", "replace")
    # Looking for a name in a line takes the square of its length.
    lines = [line[:_LINE_LENGTH] for line in text.splitlines()]
    starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    last = lines[starts[-1] + 1 :] if starts else lines
    said = (_raised(last) if starts else None) or _named(lines) or _last_line(lines)
    if not said:
        return ""
    frame = _deepest(_frames(last), in_recipe) or _deepest(_frames(lines), in_recipe)
    where = frame or _any_frame(_frames(last))
    return f"{_plain(said, roots)} {where}".strip()


def _raised(lines: Sequence[str]) -> str | None:
    """The line of a traceback that names the exception: the first behind the frames that is not part of them."""
    seen_frame = False
    for line in lines:
        if _FRAME.match(line):
            seen_frame = True
        elif seen_frame and not line[:1].isspace() and (found := _RAISED.match(line)):
            message = found["message"]
            return f"{found['type']}: {message}" if message else found["type"]
    return None


def _named(lines: Sequence[str]) -> str | None:
    for line in reversed(lines):
        if found := _NAMED.search(line):
            return f"{found['type']}: {found['message']}" if found["message"] else found["type"]
    return None


def _last_line(lines: Sequence[str]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _frames(lines: Sequence[str]) -> list[_Frame]:
    """From the outermost to the innermost."""
    found = [
        _Frame(match["file"], int(match["line"][:9]), match["where"] or "")
        for line in lines
        if (match := _FRAME.match(line))
    ]
    return found[::-1] if any(_FATAL in line for line in lines) else found


def _deepest(frames: Sequence[_Frame], in_recipe: InRecipe) -> str:
    for frame in reversed(frames):
        name = in_recipe(frame.file)
        if name is not None:
            return frame.told(name)
    return ""


def _any_frame(frames: Sequence[_Frame]) -> str:
    """Better than nothing; not what called the recipe, though."""
    for frame in reversed(frames):
        if not frame.file.startswith(_SANDBOX):
            return frame.told(PurePosixPath(frame.file).name)
    return ""


def _plain(text: str, roots: Sequence[str]) -> str:
    for root in roots:
        text = text.replace(f"{root}/", "")
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return text if len(text) <= _MESSAGE_LENGTH else f"{text[: _MESSAGE_LENGTH - 1]}…"
