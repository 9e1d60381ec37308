"""Operations: what can be done with a thing, declared once beside the code that does it, for every face.

An operation is a function with a name, help, examples and a place in each face. What it takes is the signature of its
function, where `Param` says more about a parameter than its type does; what it answers is a dataclass, which is also
the schema of the API. So a face needs nothing but the declaration: the command, the request, the MCP tool, completion
and reference are made from it. Neither click nor pydantic is needed to declare one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cached_property
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from ratchet.kernel import iso

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

P = ParamSpec("P")
R = TypeVar("R")
Row = TypeVar("Row")
# The largest number that both databases can hold.
MAX_ID = 2**63 - 1
# What a column or a field shows: an attribute, the time between two, or what a function makes of the thing.
Column = str | tuple[str, str] | Callable[[Any], object]
Columns = Mapping[str, Column]


@dataclass(frozen=True, slots=True)
class Param:
    """`metavar` is what it stands for in the help of a command, and `flag` its name there, if that is another.

    `usual` is what a command takes where nothing is said; `any` lets it be said that nothing is chosen. Numbers are
    from `least` to `most`, or `above` a bound, and texts have from `shortest` to `longest` characters. `outside` is
    what the API says of it instead. A person may also give a name for a number: `find` is what finds the number then,
    as `module:function`, given the transaction, the text, and the project that was named with --project; and `read`
    is what makes a value of what was typed, given the call and the text. An `argument` has no flag in a command though
    it is not in the path of the API. What is `within` something is named WITHIN/NAME by a person; over HTTP the first
    part is a query parameter of this name. An `engine`, a model, or a table with such in it, names no recording over
    HTTP: that is a file. For one who holds only the token of a project, it names no address and no file either, and a
    `place` is in the project. What is in the `query` is there although the request has a body; a `whole` one is the
    body itself, and a body may have it under the name of `also`. Bounds of a list are those of each text in it.
    """

    help: str = ""
    metavar: str | None = None
    flag: str | None = None
    usual: str | None = None
    least: float | None = None
    most: float | None = None
    shortest: int | None = None
    longest: int | None = None
    outside: str | None = None
    find: str | None = None
    read: str | None = None
    printable: bool = False
    argument: bool = False
    within: str | None = None
    engine: bool = False
    place: bool = False
    above: float | None = None
    query: bool = False
    whole: bool = False
    also: str | None = None


def line_of(help: str = "", metavar: str | None = None, flag: str | None = None, **more: Any) -> Param:
    """What a person would write on one line."""
    return Param(help, metavar=metavar, flag=flag, shortest=1, longest=200, printable=True, **more)


def number_of(
    help: str, metavar: str, flag: str | None = None, *, find: str | None = None, query: bool = False
) -> Param:
    """The number under which the ledger has something."""
    outside = f"The number of a {metavar.lower()}." if find is not None and flag is None else None
    return Param(
        help, metavar=metavar, flag=flag, least=1, most=MAX_ID, outside=outside, find=find, query=query
    )


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """A part of a list, and what comes `before` the next part; nothing at the end."""

    items: Sequence[Row]
    next: int | str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a list was asked for. Read `one_more` rows: the last one tells whether there is a next part."""

    before: int | None = None
    limit: int = 50

    @property
    def one_more(self) -> int:
        return self.limit + 1

    def cut(self, rows: Sequence[Row], *, number: str = "id", cursor: str = "before") -> Listing[Row]:
        """The part in `rows`. `number` is the attribute or key that parts go by, and `cursor` what the next one is
        asked for with."""
        if len(rows) <= self.limit:
            return Listing(rows)
        items = rows[: self.limit]
        last = items[-1]
        return Listing(items, last[number] if isinstance(last, Mapping) else getattr(last, number))

    def without(self, rows: Sequence[Row], hidden: Callable[[Row], bool], **how: str) -> Listing[Row]:
        """The part without what the caller may not see: it may be short, or empty, and still have a next one."""
        found = self.cut(rows, **how)
        return Listing([row for row in found.items if not hidden(row)], found.next)


@dataclass(frozen=True, slots=True)
class NameWindow:
    """The same of a list by name."""

    after: str = ""
    limit: int = 50

    @property
    def one_more(self) -> int:
        return self.limit + 1

    def cut(self, rows: Sequence[Row], name: str = "name") -> Listing[Row]:
        """The part in `rows`; `name` is the attribute that parts go by."""
        items = rows[: self.limit]
        return Listing(items, getattr(items[-1], name) if len(rows) > self.limit else None)


@dataclass(frozen=True, slots=True)
class OrderWindow:
    """The same of a list in its own order, by whole numbers."""

    after: int = -1
    limit: int = 50

    @property
    def one_more(self) -> int:
        return self.limit + 1

    def cut(self, rows: Sequence[Row], number: str = "id") -> Listing[Row]:
        """The part in `rows`; `number` is the attribute that parts go by."""
        items = rows[: self.limit]
        return Listing(items, getattr(items[-1], number) if len(rows) > self.limit else None)


@dataclass(frozen=True, slots=True)
class McpTool:
    """An operation as an MCP tool. `Declared` of `server/mcp/tool.py` tells what the other fields mean."""

    name: str
    title: str
    is_resource: bool = True
    without: frozenset[str] = frozenset()
    narrowed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    repeatable: bool = False
    destructive: bool = False
    outside: bool = False
    queues: bool = False


@dataclass(frozen=True, slots=True)
class Translation:
    """Another form of an answer, or of each thing in a list."""

    type: type
    translate: Callable[[Any], Any]

    def __call__(self, answer: Any) -> Any:
        if isinstance(answer, Listing):
            return Listing([self.translate(each) for each in answer.items], answer.next)
        return self.translate(answer)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation. `choices` are the only values that it may have, if there are such."""

    name: str
    type: Any
    about: Param
    default: Any = inspect.Parameter.empty
    may_be_none: bool = False
    choices: Sequence[str] = ()

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation(Generic[P, R]):
    """`name` is its command, such as `runs pause`, and `api` its request, such as `GET /runs/{run_id}`.

    `project_too` says that the token of a project opens it for things of that project; otherwise only the operator may.
    `columns` are those of a table of what it answers, or the fields of the one thing. `done` tells what was done, with
    the answer as `it`: "Run {it.id} is paused"; `then` is what to type next. `empty` tells what to do where a list has
    nothing yet. Where the API keeps other names, the answer is `translated` for it; and a list that is not `enveloped`
    is a bare one there. `limit` is how much of a list a command shows. `location` is where the API has what was made.
    Where the answer is not one that `succeeded`, as of checks that failed, a command exits with 1.
    A command `asks` before it does what cannot be undone, with what it takes as `it`. What is asked with a body and
    `changes_nothing` all the same only reads.
    """

    function: Callable[P, R]
    name: str
    api: str
    project_too: bool = False
    tool: McpTool | None = None
    examples: Sequence[str] = ()
    see: Sequence[str] = ()
    columns: Columns = field(default_factory=dict)
    empty: str = ""
    done: str | Callable[[Any], str] | None = None
    then: str = ""
    status: int = 200
    translated: Translation | None = None
    enveloped: bool = True
    limit: int = 50
    location: str | None = None
    asks: str | Callable[[Mapping[str, Any]], str] | None = None
    changes_nothing: bool = False
    succeeded: Callable[[Any], bool] = lambda _: True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def method(self) -> str:
        return self.api.split()[0]

    @property
    def path(self) -> str:
        return self.api.split()[1]

    @cached_property
    def places(self) -> frozenset[str]:
        """The parameters that are in the path."""
        return frozenset(re.findall(r"\{(\w+)(?::path)?\}", self.path))

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.method == "GET" or self.changes_nothing

    @property
    def is_async(self) -> bool:
        """Whether it waits for others, so that no thread is held meanwhile."""
        return inspect.iscoroutinefunction(self.function)

    def is_argument(self, parameter: Parameter) -> bool:
        """Whether a command takes it without a flag."""
        return parameter.about.argument or parameter.name in self.places

    @property
    def help(self) -> str:
        """Everything that its docstring says; the first line says what it does."""
        return inspect.cleandoc(self.function.__doc__ or "")

    def translated_answer(self, answer: R) -> Any:
        """The answer as the API gives it."""
        return answer if self.translated is None else self.translated(answer)

    def report(self, answer: R) -> str:
        """What was done, for a person."""
        if callable(self.done):
            return self.done(answer)
        return (self.done or "").format(it=answer)

    def question(self, given: Mapping[str, Any]) -> str:
        """What a command asks before it does it."""
        if callable(self.asks):
            return self.asks(given)
        return (self.asks or "").format(it=given)

    @cached_property
    def answers(self) -> Any:
        """The type of what it answers."""
        return self._hints["return"]

    @cached_property
    def takes_window(self) -> bool:
        """Whether it answers with a part of a list, newest first."""
        return Window in self._hints.values()

    @cached_property
    def takes_names(self) -> bool:
        """Whether it answers with a part of a list by name."""
        return NameWindow in self._hints.values()

    @cached_property
    def takes_order(self) -> bool:
        """Whether it answers with a part of a list in its own order."""
        return OrderWindow in self._hints.values()

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """What it takes, besides the call and the window."""
        signature = inspect.signature(self.function)
        _call, *names = signature.parameters
        return {
            name: parameter_of(name, self._hints[name], signature.parameters[name].default)
            for name in names
            if self._hints[name] not in (Window, NameWindow, OrderWindow)
        }

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.function, include_extras=True)


def operation(name: str, api: str, **more: Any) -> Callable[[Callable[P, R]], Operation[P, R]]:
    """Declare a function as an operation. Its first parameter is the call: who asks, and on which ledger."""

    def declare(function: Callable[P, R]) -> Operation[P, R]:
        return Operation(function=function, name=name, api=api, **more)

    return declare


def parameter_of(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> Parameter:
    """What a parameter of this hint is."""
    about, plain, may_be_none = Param(), hint, False
    while True:
        if get_origin(plain) is Annotated:
            plain, *notes = get_args(plain)
            about = next((each for each in notes if isinstance(each, Param)), about)
        elif get_origin(plain) in (Union, UnionType) and NoneType in get_args(plain):
            plain = Union[tuple(each for each in get_args(plain) if each is not NoneType)]  # noqa: UP007
            may_be_none = True
        else:
            break
    return Parameter(name, plain, about, default, may_be_none, _choices(plain))


def _choices(kind: Any) -> tuple[str, ...]:
    if get_origin(kind) is Literal:
        return tuple(map(str, get_args(kind)))
    return (
        tuple(str(each.value) for each in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()
    )


def described(description: str, *examples: Any) -> dict[str, Any]:
    """What the schema of an answer says about a field: the `metadata` of that field."""
    return {"description": description, **({"examples": list(examples)} if examples else {})}


def filled(kind: type[R], source: object, /, **own: Any) -> R:
    """An answer with the attributes of what it is about, except where it has something of its `own`."""
    names = (each.name for each in fields(kind) if each.name not in own)  # type: ignore[arg-type]
    return kind(**own, **{name: getattr(source, name) for name in names})


def record(item: DataclassInstance, *, without: Iterable[str] = ()) -> dict[str, Any]:
    """A dataclass as an object; whole milliseconds under `at` and `…_at` become ISO times."""
    names = [each.name for each in fields(item) if each.name not in set(without)]
    return {name: _value(name, getattr(item, name)) for name in names}


def is_time(name: str) -> bool:
    """Whether a whole number of this name is a moment, in milliseconds since 1970."""
    return name == "at" or name.endswith("_at")


def _value(name: str, value: Any) -> Any:
    if is_time(name) and isinstance(value, int):
        return iso(value)
    if isinstance(value, datetime):
        return iso(int(value.timestamp() * 1000))
    if is_dataclass(value) and not isinstance(value, type):
        return record(value)
    if isinstance(value, dict):
        return {key: _value("", each) for key, each in value.items()}
    return [_value("", each) for each in value] if isinstance(value, list | tuple) else value
