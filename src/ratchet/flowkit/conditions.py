"""The small language of `when` and `until`: comparisons, `and`, `or`, `not`, `in`, `len()`, literals and references.

A condition is parsed, never evaluated by Python: there is no way to reach an object, a function or a file from it.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .errors import SpecError, StepFailed
from .references import ALL_NAMES, PATTERN, Lookup, Reference, find_inside, read_reference

LONGEST = 1000
_MOST_PARTS = 200
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_TOKEN = re.compile(
    rf"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    rf"""|\$\{{\s*(?P<braced>{PATTERN})\s*\}}|(?<![\w.])(?P<bare>{PATTERN})(?!\w)"""
)
# Names that stand for references once they are replaced, and numbers that run into a word.
_STRAY = re.compile(r"(?<!\w)(?:_\d+|\d[\d.]*(?![eE][-+]?\d)[A-Za-z_]\w*)")
_UNKNOWN_ESCAPE = re.compile(r"""(?<!\\)(?:\\\\)*\\[^\\'"nrt]""")
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda left, right: _same(left, right),
    ast.NotEq: lambda left, right: not _same(left, right),
    ast.Is: lambda left, right: _same(left, right),
    ast.IsNot: lambda left, right: not _same(left, right),
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}


@dataclass(frozen=True)
class WhenCondition:
    """A condition that has been understood. `holds` asks `lookup` only for what the answer depends on."""

    text: str
    references: tuple[Reference, ...]
    _tree: ast.expr
    _names: dict[str, Reference]

    def holds(self, lookup: Lookup) -> bool:
        """Whether it is true. Raises `StepFailed` if its values cannot be compared so."""
        try:
            return bool(self._value(self._tree, lookup))
        except TypeError as error:
            raise StepFailed(f"the condition {self.text!r} cannot be decided: {error}", final=True) from None

    def _value(self, node: ast.expr, lookup: Lookup) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return lookup(self._names[name]) if name in self._names else _WORDS[name]
            case ast.List(elements) | ast.Tuple(elements):
                return [self._value(element, lookup) for element in elements]
            case ast.UnaryOp(ast.Not(), operand):
                return not self._value(operand, lookup)
            case ast.UnaryOp(ast.USub(), operand):
                return -self._value(operand, lookup)
            case ast.BoolOp(ast.And(), values):
                return all(self._value(value, lookup) for value in values)
            case ast.BoolOp(ast.Or(), values):
                return any(self._value(value, lookup) for value in values)
            case ast.Call(args=[argument]):
                return len(self._value(argument, lookup))
            case ast.Compare(left, operators, others):
                return self._compared(left, operators, others, lookup)
        raise AssertionError(node)

    def _compared(
        self, left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr], lookup: Lookup
    ) -> bool:
        value = self._value(left, lookup)
        for compare, other in zip(operators, others, strict=True):
            next_value = self._value(other, lookup)
            if not _COMPARE[type(compare)](value, next_value):
                return False
            value = next_value
        return True


@lru_cache(maxsize=4096)
def read_condition(text: str) -> WhenCondition:
    """The condition that a text says. Raises `SpecError` for one that it does not understand."""
    if len(text) > LONGEST:
        raise SpecError([f"a condition has at most {LONGEST} characters, this one has {len(text)}"])
    names: dict[str, Reference] = {}
    try:
        tree = ast.parse(_without_references(text, names).strip(), mode="eval").body
        _check(tree, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
        raise SpecError([f"the condition {text!r} cannot be understood: {reason}"]) from None
    return WhenCondition(text, tuple(dict.fromkeys(names.values())), tree, names)


def _without_references(text: str, names: dict[str, Reference]) -> str:
    """The text as Python can parse it, with a name in place of each reference."""

    def put(match: re.Match[str]) -> str:
        if match["text"]:
            if find_inside(match["text"], own=ALL_NAMES):
                raise ValueError(f"{match['text']} is a literal; write the reference without the quotes")
            if _UNKNOWN_ESCAPE.search(match["text"]):
                raise ValueError(f"{match['text']} has a backslash that means nothing")
            return match["text"]
        reference = read_reference(match["braced"] or match["bare"], own=ALL_NAMES)
        assert reference is not None
        name = f"_{len(names)}"
        names[name] = reference
        return f" {name} "

    stray = _STRAY.search(_TOKEN.sub(" ", text))
    if stray:
        raise ValueError(f"{stray[0]!r} means nothing")
    return _TOKEN.sub(put, text)


def _check(tree: ast.expr, names: dict[str, Reference]) -> None:
    nodes = list(ast.walk(tree))
    if len(nodes) > _MOST_PARTS:
        raise ValueError("it has too many parts")
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if id(node) not in called and not _allowed(node, names):
            raise ValueError(f"{_shown(node)} is not part of the language")


def _allowed(node: ast.AST, names: dict[str, Reference]) -> bool:
    match node:
        case ast.Constant(value):
            return isinstance(value, str | int | float | bool | None)
        case ast.Name(name):
            return name in names or name in _WORDS
        case ast.Call(ast.Name("len"), [argument], []):
            return not isinstance(argument, ast.Starred)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float())):
            return True
        case ast.UnaryOp(ast.Not()) | ast.BoolOp() | ast.Compare() | ast.List() | ast.Tuple():
            return True
    return isinstance(node, ast.boolop | ast.cmpop | ast.Not | ast.USub | ast.Load)


def _shown(node: ast.AST) -> str:
    return repr(ast.unparse(node)) if isinstance(node, ast.expr) else type(node).__name__


def _same(left: Any, right: Any) -> bool:
    """Equality as JSON knows it: `true` is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
