"""Workflow files, JSON or YAML, plans in the answers of models, and why one cannot be used."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.jsontext import DEEPEST, LARGEST, decoder, load_json
from ratchet.flowkit.reader import read_leniently, read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.flowkit.validation import check_spec
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
            raise SpecError([f"line {line}: the key {value!r} is twice in one object"])
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


_LARGEST_ANSWER = 2 * 1024 * 1024
_MOST_FAULTS = 1000
_OPENING = re.compile(r'\{\s*"')
# An object in other people's notation: single quotes, or no quotes at all.
_ALMOST = re.compile(r"\{\s*(?:'|\w+\s*:)")
_STEPS = re.compile(r'"steps"\s*:')
_WRAPPERS = ("workflow", "plan", "workflow_spec")
_CREATED_BY = "ratchet"
_LONGEST_SLUG = 30


def find_plan(text: str) -> dict[str, Any] | None:
    """The last object that has steps; nothing if there is no JSON at all.

    Raises `SpecError` for JSON that is broken or says no plan. Parts of a broken plan are never taken for the plan.
    """
    if len(text) > _LARGEST_ANSWER:
        raise SpecError([f"the answer has {len(text):,} characters; at most {_LARGEST_ANSWER:,} are read"])
    plan: dict[str, Any] | None = None
    seen = False
    fault: tuple[int, str] | None = None
    for at, found in _objects(text):
        seen = True
        if isinstance(found, str):
            fault = fault or (at, found)
        elif (one := _plan_in(found)) is not None:
            if fault and _STEPS.search(text, fault[0], at):
                break
            plan, fault = one, None
    if fault and (plan is None or _STEPS.search(text, fault[0])):
        raise SpecError([f"the JSON of the answer is broken: {fault[1]}"])
    if plan is None and (seen or _ALMOST.search(text)):
        raise SpecError(["the answer has JSON, but no object with a list of steps"])
    return plan


def _objects(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Every outermost object and where it begins; for one that is broken, what is wrong with it."""
    read = decoder(strict=False).raw_decode
    faults = 0
    opening = _OPENING.search(text)
    while opening:
        at = opening.start()
        try:
            value, end = read(text, at)
            yield at, value
        except json.JSONDecodeError as error:
            yield at, f"line {error.lineno}, column {error.colno}: {error.msg}"
            # What lies before the fault is part of the broken object.
            end = max(error.pos, at + 1)
            faults += 1
        except RecursionError:
            raise SpecError(["the JSON of the answer is nested too deeply"]) from None
        except ValueError as error:
            raise SpecError([f"the JSON of the answer is broken: {error}"]) from None
        if faults > _MOST_FAULTS:
            raise SpecError(["the answer is full of broken JSON"])
        opening = _OPENING.search(text, end)


def _plan_in(found: dict[str, Any]) -> dict[str, Any] | None:
    if "steps" in found:
        return found
    inner = [found.get(key) for key in _WRAPPERS]
    return next((one for one in inner if isinstance(one, dict) and "steps" in one), None)


def build_from_data(data: Any, *, known_tools: Collection[str] | None = None) -> WorkflowSpec:
    """The workflow that a plan says, checked. Raises `BadPlan` with everything that is wrong with it.

    A plan without a name gets one, made of its first sentence and of this second. With `known_tools` it may use only
    these, those that it carries, and those that are yet to be written.
    """
    if isinstance(data, dict):
        said = data.get("description")
        begin = (said if isinstance(said, str) else "").lower().split(".")[0][:_LONGEST_SLUG]
        slug = re.sub(r"[^a-z0-9]+", "_", begin).strip("_") or "workflow"
        data = {**data, "workflow_id": data.get("workflow_id") or f"{slug}_{int(time.time())}"}
    try:
        reading = read_leniently(data)
    except SpecError as error:
        raise BadPlan(error.problems) from None
    problems = [*reading.problems, *check_spec(reading.spec, known_tools=known_tools)]
    if problems:
        raise BadPlan(problems)
    spec = reading.spec
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return replace(spec, created_by=spec.created_by or _CREATED_BY, created_at=spec.created_at or now)
