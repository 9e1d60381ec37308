"""YAML as JSON: the same values, and nothing that JSON does not have.

Only `true` and `false` are booleans, and a date is a text. Anchors, tags and several documents in one file are refused,
so a small file cannot stand for a large value.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.jsontext import DEEPEST

LARGEST = 8 * 1024 * 1024
_PLAIN: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"~|null|Null|NULL|"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]{1,4000}"), int),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"), float),
)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Any:
    """The value of a YAML document. Raises `SpecError` that names the line."""
    if len(text) > LARGEST:
        raise SpecError([f"the document has {len(text):,} characters; at most {LARGEST:,} are read"])
    reader = _Reader()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise SpecError([f"{where}{error.problem or error}"]) from None
    except yaml.YAMLError as error:
        raise SpecError([str(error)]) from None
    return reader.value


class _Reader:
    """Puts a value together from the events of a document, without recursion."""

    def __init__(self) -> None:
        self.value: Any = None
        self._open: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str | None] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1
        if getattr(event, "anchor", None) is not None:
            raise SpecError([f"line {line}: anchors and aliases are not allowed in a workflow"])
        if getattr(event, "tag", None) not in (None, "!"):
            raise SpecError([f"line {line}: the tag {event.tag} is not allowed in a workflow"])
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    raise SpecError([f"line {line}: a second document begins"])
            case yaml.ScalarEvent():
                self._put(_scalar(event), line)
            case yaml.MappingStartEvent():
                self._enter({}, line)
            case yaml.SequenceStartEvent():
                self._enter([], line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._open.pop()
                self._keys.pop()

    def _enter(self, value: dict[str, Any] | list[Any], line: int) -> None:
        if len(self._open) >= DEEPEST:
            raise SpecError([f"line {line}: the document is nested too deeply"])
        self._put(value, line)
        self._open.append(value)
        self._keys.append(None)

    def _put(self, value: Any, line: int) -> None:
        if not self._open:
            self.value = value
            return
        inside = self._open[-1]
        if isinstance(inside, list):
            inside.append(value)
        elif self._keys[-1] is not None:
            inside[self._keys[-1]] = value
            self._keys[-1] = None
        elif not isinstance(value, str):
            raise SpecError([f"line {line}: a key must be a text, not {value!r}; put it in quotes"])
        elif value in inside:
            raise SpecError([f"line {line}: the key {value!r} stands twice in one object"])
        else:
            self._keys[-1] = value


def _scalar(event: yaml.ScalarEvent) -> Any:
    if not event.implicit[0]:
        return event.value
    for pattern, read in _PLAIN:
        if pattern.fullmatch(event.value):
            return read(event.value)
    return event.value
