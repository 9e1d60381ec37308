"""What stands in the function of a workflow for what is not there yet, and the graph that is built of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from ratchet.flowkit.references import ALL_NAMES, read_reference
from ratchet.flowkit.spec import ToolDefinition, WorkflowStep
from ratchet.kernel import Misuse

_PLAIN_NAME = re.compile(r"[\w-]+")
_BRACED = re.compile(r"(?<![{$])\{([A-Za-z_][\w-]*)\}(?!\})")
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class Value:
    """What an input, a step or an item will be. It has the parts that its value will have, can stand in an f-string,
    and be compared in `when` and `until`. Python itself cannot decide by it: it is not there yet."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Value:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key: str | int) -> Value:
        if isinstance(key, int):
            return Value(f"{self._path}[{key}]")
        if _PLAIN_NAME.fullmatch(key):
            return Value(f"{self._path}.{key}")
        quote = '"' if "'" in key else "'"
        return Value(f"{self._path}[{quote}{key}{quote}]")

    def __str__(self) -> str:
        return f"${{{self._path}}}"

    def __repr__(self) -> str:
        return f"<the value of {self._path}>"

    def __format__(self, how: str) -> str:
        if how:
            raise self._not_there(f"be written as {how!r}")
        return str(self)

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return _compared(self, "==", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return _compared(self, "!=", other)

    def __lt__(self, other: object) -> Condition:
        return _compared(self, "<", other)

    def __le__(self, other: object) -> Condition:
        return _compared(self, "<=", other)

    def __gt__(self, other: object) -> Condition:
        return _compared(self, ">", other)

    def __ge__(self, other: object) -> Condition:
        return _compared(self, ">=", other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise self._not_there("decide an `if`; write `with when(…):`")

    def __iter__(self) -> Iterator[Any]:
        raise self._not_there("be looped over; write `step.each(…)`")

    def __len__(self) -> int:
        raise self._not_there("be counted; write `when(f'len({…}) > 3')`")

    def __contains__(self, item: object) -> bool:
        raise self._not_there("be searched; write `when(f'{…} in {…}')`")

    def __call__(self, *_args: Any, **_more: Any) -> Any:
        raise self._not_there("be called; do that in a step")

    def _reckon(self, _other: object) -> Any:
        raise self._not_there("be reckoned with; do that in a step, or write a text as an f-string")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _reckon
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _reckon

    def _not_there(self, what: str) -> Misuse:
        return Misuse(f"{self._path} is there only when the workflow runs, so it cannot {what}")


@dataclass(frozen=True)
class Condition:
    """A comparison of what is not there yet; `&`, `|` and `~` join them."""

    text: str

    def __and__(self, other: Condition) -> Condition:
        return Condition(f"({self.text}) and ({other.text})")

    def __or__(self, other: Condition) -> Condition:
        return Condition(f"({self.text}) or ({other.text})")

    def __invert__(self) -> Condition:
        return Condition(f"not ({self.text})")

    def __bool__(self) -> bool:
        raise Misuse(
            f"whether {self.text} is known only when the workflow runs",
            hint="write `with when(…):`, and `&`, `|`, `~` for `and`, `or`, `not`",
        )


def _compared(value: Value, operator: str, other: object) -> Condition:
    written = other._path if isinstance(other, Value) else json.dumps(other, ensure_ascii=False)
    return Condition(f"{value._path} {operator} {written}")


def condition_text(condition: Condition | str | object) -> str:
    """The text of a condition. An f-string with values in it is one."""
    if isinstance(condition, Condition):
        return condition.text
    if isinstance(condition, Value):
        return condition._path
    if isinstance(condition, str):
        return condition
    raise Misuse(
        f"{condition!r} is no condition on what comes of steps", hint="compare a value of the workflow"
    )


class WorkflowGraph:
    """The workflow that is being built."""

    def __init__(self) -> None:
        self.steps: list[WorkflowStep] = []
        self.tools: dict[str, ToolDefinition] = {}
        self.conditions: list[str] = []
        self._ids: set[str] = set()

    def add(self, name: str, **fields: Any) -> Any:
        step_id = _free(_NOT_A_NAME.sub("_", name), self._ids)
        self._ids.add(step_id)
        if self.conditions:
            fields["when"] = " and ".join(f"({each})" for each in self.conditions)
        self.steps.append(WorkflowStep(step_id, **fields))
        return Value(f"steps.{step_id}.output")

    def carry(self, definition: ToolDefinition) -> str:
        """The name under which the workflow brings a tool with it."""
        for name, known in self.tools.items():
            if replace(definition, tool_id=name, name=known.name) == known:
                return name
        name = _free(definition.tool_id, self.tools)
        self.tools[name] = replace(definition, tool_id=name)
        return name


BUILDING: ContextVar[WorkflowGraph | None] = ContextVar("BUILDING", default=None)


def building(what: str) -> WorkflowGraph:
    graph = BUILDING.get()
    if graph is None:
        raise Misuse(f"`{what}` is a step of a workflow", hint="call it in a function with @workflow")
    return graph


def _free(name: str, taken: Iterable[str]) -> str:
    number, known = 1, set(taken)
    while (free := name if number == 1 else f"{name}_{number}") in known:
        number += 1
    return free


def given_json(value: Any) -> Any:
    """A value as the input of a step: JSON, with references to what is not there yet."""
    if isinstance(value, Value):
        return value._path
    if isinstance(value, Condition):
        raise Misuse(
            f"{value.text} is a condition, and no value of a step", hint="use it in `when` or `until`"
        )
    if isinstance(value, str):
        if not value.startswith("$") and read_reference(value, own=ALL_NAMES) is not None:
            raise Misuse(
                f"the text {value!r} would be taken for a reference", hint="make it an input of the workflow"
            )
        return value
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [given_json(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): given_json(each) for key, each in value.items()}
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return given_json(to_jsonable_python(value))
    except PydanticSerializationError:
        raise Misuse(f"{value!r} cannot be given to a step: it is no JSON") from None


def question_text(text: str) -> str:
    """A question as a template, in which braces around a word are what they look like."""
    return _BRACED.sub(r"{{\1}}", str(text))
