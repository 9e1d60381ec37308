"""Reading YAML and JSON that anybody may have written: plain values, and no more of them than a definition needs."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

import yaml

from ratchet.tools.fields import Unreadable

MOST_BYTES = 1024 * 1024
_MOST_VALUES = 50_000
_DEEPEST = 50
_LONGEST_NUMBER = 300


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Plain values only. A date stays the text that it is in the file."""

    def construct_short_int(self, node: Any) -> Any:
        return self.construct_yaml_int(_short(node))

    def construct_short_float(self, node: Any) -> Any:
        return self.construct_yaml_float(_short(node))


def _short(node: Any) -> Any:
    """A number of a length that numbers have: one in base 60, which YAML has too, may take minutes to work out."""
    if len(node.value) > _LONGEST_NUMBER:
        raise Unreadable(f"{node.value[:20]}… is too long for a number")
    return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_short_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_short_float)


def read_bytes(path: Path, within: Path, *, most: int = MOST_BYTES) -> bytes:
    """What is in a file that lies within a folder, also after following links. Raises `Unreadable`."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(within.resolve()):
            raise Unreadable(f"{path} leads out of {within}")
        # Not blocking: opening a pipe that nobody writes to would wait for ever.
        with os.fdopen(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unreadable(f"{path} is not a file")
            raw = file.read(most + 1)
    except (OSError, RuntimeError) as error:
        raise Unreadable(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(raw) > most:
        raise Unreadable(f"{path} is larger than {most:,} bytes")
    return raw


def read_text(path: Path, within: Path) -> str:
    """The text of such a file; a mark of its encoding at the start is left out."""
    try:
        return read_bytes(path, within).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from error


def loaded_yaml(text: str) -> Any:
    """The value that a YAML document has, as JSON has values. Raises `Unreadable`."""
    try:
        _weigh(text)
        found = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise Unreadable(f"it is not YAML: {' '.join(str(error).split())[:300]}") from error
    except (RecursionError, ValueError, TypeError) as error:
        raise Unreadable(f"it is not YAML that can be read: {str(error)[:200]}") from error
    return _plain(found)


def loaded_json(text: str) -> Any:
    """The value of a JSON text, or `None` if it is none."""
    try:
        return _plain(json.loads(text))
    except (ValueError, RecursionError, Unreadable):
        return None


def _weigh(text: str) -> None:
    """Refuse what would take too much to load: values inside values without end, and few words that mean millions.

    The parser reports one event after the other and can be left at any; what loads them goes down with every level,
    and too deep it takes the process with it. An alias weighs as much as what it stands for.
    """
    weights: dict[str, int] = {}
    open_nodes: list[tuple[str | None, int]] = [(None, 0)]
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, weight = open_nodes.pop()
        elif isinstance(event, yaml.CollectionStartEvent):
            open_nodes.append((event.anchor, 1))
            if len(open_nodes) > _DEEPEST:
                raise Unreadable(f"it is more than {_DEEPEST} deep")
            continue
        elif isinstance(event, yaml.AliasEvent):
            # One that stands for what it is part of has no weight yet, and no end.
            anchor, weight = None, weights.get(event.anchor, _MOST_VALUES + 1)
        elif isinstance(event, yaml.ScalarEvent):
            anchor, weight = event.anchor, 1
        else:
            continue
        if anchor is not None:
            weights[anchor] = weight
        outer, before = open_nodes[-1]
        open_nodes[-1] = (outer, before + weight)
        if before + weight > _MOST_VALUES:
            raise Unreadable(f"it has more than {_MOST_VALUES:,} values")


def _plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON has it."""
    if depth > _DEEPEST:
        raise Unreadable(f"it is more than {_DEEPEST} deep")
    if isinstance(value, dict):
        return {_key(key): _plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, depth + 1) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise Unreadable(f"{value} is not a number that JSON has")
    if value is None or isinstance(value, str | int | float):
        return value
    raise Unreadable(f"a value of type {type(value).__name__} is not one that JSON has")


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, bool | int | float):
        return json.dumps(key)
    raise Unreadable(f"{str(key)[:60]!r} cannot be a key")
