"""What a comment `# search: …` behind a constant says: a range of numbers, or a choice of literals."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass

from ratchet.kernel import Misuse

Literal = bool | int | float | str | bytes | None

_WHOLE = re.compile(r"[-+]?\d[\d_]*")
_MOST_OPTIONS = 1_000


class BadDeclaration(Misuse):
    """The program declares something that cannot be searched."""

    def __init__(self, path: str, line: int, message: str) -> None:
        super().__init__(
            f"{path}:{line}: {message}",
            hint='declare a range as `X = 3  # search: 1..8` (or `0.001..1 log`), a choice as `# search: "a" | "b"`',
        )
        self.path = path
        self.line = line


class Unfit(ValueError):
    """Why a declaration makes no sense; whoever knows the place says where."""


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, both included; with `log` small ones are searched as finely as large ones."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise Unfit("a range must be finite")
        if self.low >= self.high:
            raise Unfit(f"the range {self.low:g}..{self.high:g} is empty; the smaller number comes first")
        if self.log and self.low <= 0:
            raise Unfit(f"a logarithmic range must lie above 0, and this one begins at {self.low:g}")
        if self.whole and self.high > 2**53:
            raise Unfit(f"{self.high:g} is more than a whole number can be here")


@dataclass(frozen=True, slots=True)
class Choice:
    """Literals as they are written, and what they are worth."""

    options: tuple[str, ...]
    values: tuple[Literal, ...]

    def index(self, value: Literal) -> int | None:
        # 1, 1.0 and True are equal to Python, and not to a reader.
        same = [
            kind is type(value) and option == value
            for option, kind in zip(self.values, map(type, self.values), strict=True)
        ]
        return same.index(True) if True in same else None


def parse(text: str) -> Range | Choice:
    """What the text behind `search:` means. Raises `Unfit`."""
    return _range(text) if ".." in text and '"' not in text and "'" not in text else _choice(text)


def _range(text: str) -> Range:
    bounds, _, scale = text.partition(" log")
    low, _, high = (part.strip() for part in bounds.partition(".."))
    if scale.strip():
        raise Unfit(f"{scale.strip()!r} is not known behind a range; only `log` is")
    whole = bool(_WHOLE.fullmatch(low) and _WHOLE.fullmatch(high))
    return Range(_number(low), _number(high), log=text.endswith(" log"), whole=whole)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Unfit(f"{text!r} is not a number") from None


def _choice(text: str) -> Choice:
    try:
        tree = ast.parse(text, mode="eval").body
        parts = _alternatives(tree)
        values = tuple(ast.literal_eval(part) for part in parts)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise Unfit(f"{text!r} is neither a range nor a choice") from None
    if not all(isinstance(value, Literal) for value in values):
        raise Unfit(f"{text!r} offers something other than numbers, texts, True, False and None")
    if not 2 <= len(values) <= _MOST_OPTIONS:
        raise Unfit(f"{text!r} offers {len(values)}; a choice has from 2 to {_MOST_OPTIONS}")
    if len({(type(value), value) for value in values}) < len(values):
        raise Unfit(f"{text!r} offers something twice")
    return Choice(tuple(ast.get_source_segment(text, part) or "" for part in parts), values)


def _alternatives(tree: ast.expr) -> list[ast.expr]:
    """The operands of a chain of `|`, first to last."""
    parts = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        parts.append(tree.right)
        tree = tree.left
    return [tree, *reversed(parts)]
