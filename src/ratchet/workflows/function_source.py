"""The source of a Python function with what it needs of its module, so that it runs in a process that has neither."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import re
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ratchet.kernel import Misuse

# What is annotated is of this program, and need not be there.
_FIRST = "from __future__ import annotations"


def portable_source(function: FunctionType, *, unwrapped: Mapping[int, FunctionType] | None = None) -> str:
    """A module that defines the function without its decorators, and whatever it uses.

    Functions and classes of packages that are installed are imported there; those of the program itself come along with
    what they use, and so do constants. `unwrapped` has the functions behind other objects, by their `id`. Raises
    `Misuse` for what cannot come along.
    """
    luggage = _Luggage(function.__name__, unwrapped or {})
    luggage.take_function(function.__name__, function, decorated=False)
    return "\n\n\n".join([_FIRST, *luggage.pieces.values()]) + "\n"


class _Luggage:
    def __init__(self, owner: str, unwrapped: Mapping[int, FunctionType]) -> None:
        self.pieces: dict[str, str] = {}
        """By name, each behind what it needs when it is defined."""
        self._owner = owner
        self._unwrapped = unwrapped
        self._taken: dict[str, Any] = {}

    def take(self, name: str, value: Any) -> None:
        value = self._unwrapped.get(id(value), value)
        if name in self._taken:
            if self._taken[name] is not value:
                raise Misuse(f"{self._owner} uses two different things that are called {name}")
            return
        if isinstance(value, ModuleType):
            self._note(name, value, _imported(value.__name__, name))
        elif _is_installed(value):
            self._note(name, value, f"from {value.__module__} import {_as(value.__qualname__, name)}")
        elif isinstance(behind := inspect.unwrap(value) if callable(value) else value, FunctionType):
            self.take_function(name, behind, value=value)
        elif isinstance(value, type):
            self._take_class(name, value)
        elif isinstance(value, re.Pattern):
            self.take("re", re)
            self._note(name, value, f"{name} = re.compile({value.pattern!r}, {value.flags})")
        else:
            self._take_constant(name, value)

    def take_function(
        self, name: str, function: FunctionType, *, decorated: bool = True, value: Any = None
    ) -> None:
        if name != function.__name__:
            raise Misuse(f"{self._owner} uses {function.__name__} by another name, {name}; use its own")
        text, node = _source(self._owner, function)
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        self._taken[name] = function if value is None else value
        around = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        # These are needed when it is defined, the others when it is called; which may be in a circle.
        first = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
        if decorated:
            first += node.decorator_list
        for used in dict.fromkeys([*_names(first), *_globals(function.__code__)]):
            self._take_from(used, around)
        self.pieces[name] = _lines(text, node, decorated=decorated)

    def _take_class(self, name: str, value: type) -> None:
        text, node = _source(self._owner, value)
        self._taken[name] = value
        around = vars(sys.modules[value.__module__])
        for used in dict.fromkeys(_names([node])):
            self._take_from(used, around)
        self.pieces[name] = _lines(text, node, decorated=True)

    def _take_from(self, used: str, around: Mapping[str, Any]) -> None:
        # What is nowhere is a name of its own, or its error when it is called.
        if used in around:
            self.take(used, around[used])

    def _take_constant(self, name: str, value: Any) -> None:
        try:
            written = repr(value)
            same = ast.literal_eval(written) == value
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            same = False
        if not same:
            raise Misuse(
                f"{self._owner} uses {name}, {_described(value)} that cannot go into a process of its own",
                hint="give it what it needs as an argument, or make it inside of the function",
            )
        self._note(name, value, f"{name} = {written}")

    def _note(self, name: str, value: Any, piece: str) -> None:
        self._taken[name] = value
        self.pieces[name] = piece


def _source(owner: str, value: Any) -> tuple[str, ast.stmt]:
    """The text in which it is defined, and the definition."""
    try:
        text = textwrap.dedent(inspect.getsource(value))
        node = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise Misuse(
            f"the source of {value.__qualname__}, which {owner} needs, cannot be read: {error}"
        ) from None
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        what = "async" if isinstance(node, ast.AsyncFunctionDef) else "not defined by a `def` or a `class`"
        raise Misuse(f"{value.__qualname__} is {what}, and cannot go into a process of its own")
    return text, node


def _lines(text: str, node: Any, *, decorated: bool) -> str:
    begin = min([node.lineno, *(each.lineno for each in node.decorator_list if decorated)])
    return "\n".join(text.splitlines()[begin - 1 : node.end_lineno])


def _globals(code: CodeType) -> Iterator[str]:
    """The names that a function looks up outside of itself, in functions inside of it as well."""
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            yield str(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals(constant)


def _names(nodes: list[Any]) -> Iterator[str]:
    """The names that are read, but for those of annotations, which are not looked at there."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        for key, below in ast.iter_fields(node):
            if key not in ("annotation", "returns"):
                found = below if isinstance(below, list) else [below]
                waiting += [each for each in found if isinstance(each, ast.AST)]


def _is_installed(value: Any) -> bool:
    """Whether it can be imported where this program is not."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not name.isidentifier():
        return False
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or module == builtins.__name__:
        return module != "__main__"
    file = getattr(sys.modules.get(top), "__file__", None)
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return file is not None and any(Path(file).is_relative_to(place) for place in places)


def _imported(module: str, name: str) -> str:
    if module == name:
        return f"import {module}"
    parent, _, last = module.rpartition(".")
    return f"from {parent} import {_as(last, name)}" if parent else f"import {_as(module, name)}"


def _as(there: str, here: str) -> str:
    return there if there == here else f"{there} as {here}"


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
