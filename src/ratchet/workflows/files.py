"""Workflow files, JSON or YAML, and why one cannot be used."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import yaml

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.jsontext import DEEPEST, LARGEST, load_json
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.kernel import Misuse, RatchetError

LARGEST_YAML = 8 * 1024 * 1024
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_YAML = (".yaml", ".yml")


class BadPlan(RatchetError):
    """A plan that cannot be used. `problems` has a sentence for each thing that is wrong."""

    http_status = 502

    def __init__(self, problems: list[str]) -> None:
        super().__init__(f"the plan cannot be used: {'; '.join(problems)}", hint="ask for a corrected plan")
        self.problems = problems


class UnreadableWorkflow(Misuse):
    """A workflow file that cannot be read. `problems` has a sentence for each thing that is wrong."""

    def __init__(self, file: str, problems: list[str]) -> None:
        super().__init__(
            f"{file}: {'; '.join(problems)}",
            hint="correct the file; docs/workflow-format.md describes the format",
        )
        self.file = file
        self.problems = problems


class BadWorkflow(RatchetError):
    """A workflow that cannot run as it is. `problems` has everything that is wrong with it."""

    exit_code = 1
    http_status = 422

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems), hint="`ratchet workflow validate FILE` lists every problem")
        self.problems = problems


_PLAIN: tuple[tuple[re.Pattern[str], Any], ...] = (
    (re.compile(r"~|null|Null|NULL|"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]{1,4000}"), int),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"), float),
)


def load_yaml(text: str) -> Any:
    """The value of a YAML document. Raises `SpecError` that names the line."""
    if len(text) > LARGEST_YAML:
        raise SpecError([f"the document has {len(text):,} characters; at most {LARGEST_YAML:,} are read"])
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


def read_file(path: Path | str) -> WorkflowSpec:
    """The workflow of a file: YAML if its name ends so, JSON otherwise. It is read, not yet checked.

    Raises `UnreadableWorkflow` with everything that cannot be read, and the line where the file itself is broken.
    """
    try:
        return read_spec(read_data(path))
    except SpecError as error:
        raise UnreadableWorkflow(str(path), error.problems) from None


def read_data(path: Path | str) -> Any:
    """What a file says, as JSON; whether that is a workflow is not looked at. Raises `UnreadableWorkflow`."""
    path = Path(path)
    try:
        content = _content(path)
        return load_yaml(_decoded(content)) if path.suffix in _YAML else load_json(content)
    except OSError as error:
        raise UnreadableWorkflow(str(path), [error.strerror or str(error)]) from error
    except SpecError as error:
        raise UnreadableWorkflow(str(path), error.problems) from None


def _content(path: Path) -> bytes:
    # Not blocking: opening a pipe without a writer would wait for ever.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SpecError(["it is not a file"])
        return file.read(LARGEST + 1)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError([f"the document is not UTF-8: {error.reason} at byte {error.start}"]) from None
