"""Commands that are made from operations: how what they take is typed, and how what they answer looks."""

from __future__ import annotations

import contextlib
import getpass
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_origin

import click

from ratchet.cli.command import Command
from ratchet.cli.opening import existing_ledger
from ratchet.cli.output import confirm, note, show_list, show_one
from ratchet.cli.params import COUNT, ID, Amount, Number
from ratchet.cli.words import age, compact, span
from ratchet.kernel import Misuse
from ratchet.operations import (
    Column,
    Columns,
    Listing,
    NameWindow,
    Operation,
    Parameter,
    Window,
    is_time,
    record,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ratchet.cli.session import CliSession
    from ratchet.config import Loaded, Settings
    from ratchet.ledger import Ledger, Transaction
    from ratchet.runtime import Runtime

F = TypeVar("F", bound=Callable[..., Any])
_ANY = "any"
_WITHIN = "--project"


class CliCall:
    """A call by the person at the terminal, who may see and do everything."""

    actor = "cli"
    request_id = None
    project_id = None
    is_budgeted = False

    def __init__(self, session: CliSession, ledger: Ledger, runtime: Runtime | None = None) -> None:
        self._session = session
        self._runtime = runtime
        self.ledger = ledger
        self.kept: dict[str, Any] = {}

    @cached_property
    def runtime(self) -> Runtime:
        if self._runtime is not None:
            return self._runtime
        from ratchet.runtime import open_runtime

        return open_runtime(self._session.load(), self.ledger)

    @property
    def loaded(self) -> Loaded:
        return self._session.load()

    @property
    def home(self) -> Path:
        return self.loaded.home

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def person(self) -> str:
        return user_name()

    def read(self) -> AbstractContextManager[Transaction]:
        return self.ledger.read()

    def write(self) -> AbstractContextManager[Transaction]:
        # Before the ledger is locked: the first time it takes long.
        _ = self.runtime
        return self.ledger.write(actor=self.actor)

    def hidden(self, tx: Transaction, project_ids: Iterable[int | None]) -> frozenset[int | None]:
        return frozenset()

    def serving(self, agent: str) -> None:
        return None


def user_name() -> str:
    """The name of the user who types, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user that has a number only
        return "cli"


@contextlib.contextmanager
def calling(session: CliSession) -> Iterator[CliCall]:
    """A call on the ledger that is there. Raises `Misuse` when there is none."""
    with existing_ledger(session) as ledger:
        yield CliCall(session, ledger)


def command_of(operation: Operation[..., Any]) -> Command:
    """The command that an operation is."""
    return looking_like(operation)(lambda session, _call, answer: show_answer(session, operation, answer))


def looking_like(
    operation: Operation[..., Any],
) -> Callable[[Callable[[CliSession, CliCall, Any], None]], Command]:
    """The command of an operation, with a look of its own: the function gets the session, the call and the answer."""

    def make(look: Callable[[CliSession, CliCall, Any], None]) -> Command:
        @click.pass_obj
        def run(session: CliSession, /, **given: Any) -> int:
            if operation.asks is not None and not given.pop("yes") and not _agreed(operation.question(given)):
                note("Nothing is changed.")
                return 1
            with calling(session) as call:
                answer = answer_of(operation, call, values_of(operation, call, given))
                look(session, call, answer)
            return 0 if operation.succeeded(answer) else 1

        return Command(
            operation.name.rpartition(" ")[2],
            callback=run,
            params=[*parameters_of(operation)],
            help=operation.help,
            examples=operation.examples,
            see=operation.see,
        )

    return make


def answer_of(operation: Operation[..., Any], call: CliCall, values: Mapping[str, Any]) -> Any:
    """What an operation answers, however long it waits for others."""
    answer = operation(call, **values)
    if not operation.is_async:
        return answer
    import asyncio

    return asyncio.run(answer)


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise Misuse(f"there is no terminal to ask on: {question}", hint="add --yes")
    return click.confirm(question, err=True)


def shown(columns: Columns, item: Any) -> dict[str, object]:
    """The fields of one thing as people read them."""
    return {name: _cell(column, item) for name, column in columns.items()}


def show_answer(session: CliSession, operation: Operation[..., Any], answer: Any) -> None:
    """As the declaration says: a table, what was done, or the fields of one thing."""
    if isinstance(answer, Listing):
        columns = {name: partial(_cell, column) for name, column in operation.columns.items()}
        show_list(session, answer.items, columns, record=record, empty=operation.empty)
    elif operation.done is not None:
        confirm(session, record(answer), _report(operation, answer))
    else:
        show_one(session, record(answer), shown(operation.columns, answer))


def _report(operation: Operation[..., Any], answer: Any) -> str:
    done = operation.report(answer)
    return f"{done}; {operation.then.format(it=answer)}." if operation.then else f"{done}."


def _cell(column: Column, item: Any) -> object:
    if isinstance(column, tuple):
        start, end = column
        return span(getattr(item, start), getattr(item, end))
    if isinstance(column, str) and is_time(column):
        return age(getattr(item, column))
    value = column(item) if callable(column) else getattr(item, column)
    return compact(value) if isinstance(value, dict | list) else cast("object", value)


def parameters_of(operation: Operation[..., Any]) -> Iterator[click.Parameter]:
    for each in operation.parameters.values():
        is_place = operation.is_argument(each)
        yield _argument(each) if is_place else _option(each)
        if is_place and each.about.find is not None and each.name != "project_id":
            yield click.Option(
                [_WITHIN],
                metavar="PROJECT",
                help="The project it belongs to, where its name alone is not enough.",
            )
    if operation.asks is not None:
        yield click.Option(["--yes", "-y"], is_flag=True, help="Do not ask.")
    if operation.takes_window or operation.takes_names:
        yield click.Option(
            ["--limit", "-n"], type=COUNT, default=operation.limit, show_default=True, help="At most so many."
        )
    if operation.takes_window:
        yield click.Option(
            ["--before"], type=ID, metavar="ID", help="Only older than this one: the next page."
        )
    if operation.takes_names:
        yield click.Option(
            ["--after"], default="", metavar="NAME", help="Only names after this one: the next page."
        )


def taking(operation: Operation[..., Any], *names: str) -> Callable[[F], F]:
    """What an operation takes under these names, for a command that is more than the operation."""

    def add(function: F) -> F:
        given = [each for each in parameters_of(operation) if each.name in names]
        known: list[click.Parameter] = getattr(function, "__click_params__", [])
        function.__click_params__ = [*known, *reversed(given)]  # type: ignore[attr-defined]
        return function

    return add


def _argument(parameter: Parameter) -> click.Argument:
    about = parameter.about
    metavar = about.metavar or parameter.name.upper()
    return click.Argument(
        [parameter.name],
        metavar=metavar if parameter.required else f"[{metavar}]",
        required=parameter.required,
        type=_type(parameter),
        help=about.help,
    )


def _option(parameter: Parameter) -> click.Option:
    about = parameter.about
    flag = about.flag or f"--{parameter.name.replace('_', '-')}"
    if parameter.type is bool:
        given = {"required": True} if parameter.required else {"default": parameter.default}
        return click.Option([flag, parameter.name], is_flag=True, help=about.help, **given)
    if get_origin(parameter.type) is list and about.read is None:
        return click.Option(
            [flag, parameter.name],
            type=_type(parameter),
            metavar=about.metavar,
            multiple=True,
            help=about.help,
        )
    default = about.usual or (None if parameter.required else parameter.default)
    return click.Option(
        [flag, parameter.name],
        type=_type(parameter),
        metavar=about.metavar,
        default=None if default is None else str(default),
        show_default=default is not None,
        required=parameter.required,
        help=about.help,
    )


def _type(parameter: Parameter) -> click.ParamType[Any]:
    about = parameter.about
    if about.find is not None:
        return click.STRING
    if parameter.choices:
        return click.Choice([*parameter.choices, *([_ANY] if about.usual else [])])
    if parameter.type is int:
        return Number(int(about.least or 0), int(about.most or ID.max))
    if parameter.type is float:
        return Amount(math.inf if about.most is None else about.most, zero=about.least == 0)
    return Text(about.shortest or 0, about.longest)


class Text(click.ParamType[str]):
    """Text of `shortest` to `longest` characters."""

    name = "text"

    def __init__(self, shortest: int, longest: int | None) -> None:
        self.shortest = shortest
        self.longest = longest

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if len(text) < self.shortest:
            self.fail(f"it has {len(text)} characters; at least {self.shortest} are needed.", param, ctx)
        if self.longest is not None and len(text) > self.longest:
            self.fail(f"it has {len(text)} characters; at most {self.longest} are taken.", param, ctx)
        return text


def values_of(operation: Operation[..., Any], call: CliCall, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed as what the operation takes."""
    within = {"project": given["project"]} if "project" in given else {}
    found: dict[str, Any] = {}
    for name, parameter in operation.parameters.items():
        about, typed = parameter.about, given[name]
        if about.find is not None and typed is not None:
            found[name] = _found(about.find, call, typed, within)
        elif about.read is not None and typed is not None:
            found[name] = _named(about.read)(call, typed)
        else:
            found[name] = _value(parameter, typed)
    if operation.takes_window:
        found["window"] = Window(given["before"], given["limit"])
    if operation.takes_names:
        found["window"] = NameWindow(given["after"], given["limit"])
    return found


def _found(find: str, call: CliCall, text: str, within: Mapping[str, str | None]) -> int:
    """The number of what a person has named."""
    with call.read() as tx:
        number: int = _named(find)(tx, text, **within)
    return number


def _named(function: str) -> Callable[..., Any]:
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def _value(parameter: Parameter, typed: Any) -> Any:
    if typed is None or (typed == _ANY and parameter.about.usual):
        return None if parameter.required or parameter.may_be_none else parameter.default
    return parameter.type(typed) if parameter.choices else typed
