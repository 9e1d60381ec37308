"""Adding settings to a `ratchet.toml` that is there already, without touching what a person wrote."""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.config.initial import write_initial
from ratchet.config.sources import Key, flatten
from ratchet.kernel import ConfigError

_HEADER = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?$")
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def add_settings(home: Path, values: Mapping[Key, Any]) -> Path:
    """Set keys that the file of `home` does not set yet; the others keep their values. Makes the file if need be.

    The file is replaced as a whole or not at all. Raises `ConfigError` if it cannot be written, or has a form in which
    the keys cannot be added; the hint is what to write by hand.
    """
    path = write_initial(home)
    text = path.read_text(encoding="utf-8")
    known = dict(flatten(tomllib.loads(text)))
    missing = {key: value for key, value in values.items() if key not in known}
    added = _added(text, missing)
    if added is None or dict(flatten(tomllib.loads(added))) != {**known, **missing}:
        lines = "\n".join(f"{_dotted(key)} = {json.dumps(value)}" for key, value in missing.items())
        raise ConfigError(
            f"{path} has a form in which nothing can be added by itself", hint=f"write:\n{lines}"
        )
    if added != text:
        _replace(path, added)
    return path


def _added(text: str, values: Mapping[Key, Any]) -> str | None:
    lines = text.splitlines()
    for key, value in values.items():
        lines = _with_line(lines, key, json.dumps(value))
    added = "\n".join(lines) + "\n"
    try:
        tomllib.loads(added)
    except tomllib.TOMLDecodeError:
        return None
    return added


def _with_line(lines: list[str], key: Key, value: str) -> list[str]:
    """The line goes below the deepest table that is begun for it, else to the keys that stand before all tables."""
    headers = {index: _parts(found[1]) for index, line in enumerate(lines) if (found := _HEADER.match(line))}
    own = [index for index, table in headers.items() if table == key[: len(table)] and len(table) < len(key)]
    if own:
        index = max(own, key=lambda each: len(headers[each]))
        return [
            *lines[: index + 1],
            f"{_dotted(key[len(headers[index]) :])} = {value}",
            *lines[index + 1 :],
        ]
    written = f"{_dotted(key)} = {value}"
    commented = f"#{_dotted(key)} ="
    first = min(headers, default=len(lines))
    for index, line in enumerate(lines[:first]):
        if line.startswith(commented):
            return [*lines[:index], written, *lines[index + 1 :]]
    return [*lines[:first], written, *lines[first:]]


def _dotted(key: Key) -> str:
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part) for part in key)


def _parts(text: str) -> Key:
    return tuple(part.strip("\"'") for part in _PART.findall(text))


def _replace(path: Path, text: str) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(path.stat().st_mode & 0o777)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}", hint="change its permissions"
        ) from error
