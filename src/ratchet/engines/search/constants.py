"""The constants of a program that may be changed: each is one literal at a known place of a file."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ratchet.engines.search.declaration import BadDeclaration, Choice, Literal, Range, Unfit, parse

_DECLARATION = re.compile(r"#\s*search:\s*(.*?)\s*")
# Behind one of these, or behind a keyword, a minus belongs to the number; behind anything else it subtracts.
_BEFORE_A_SIGN = {*"=([{,:+-*/%<>|&^~@", "**", "//", "==", "!=", "<=", ">=", ":=", "->"}
# `name = `, `name: float = ` and `"key": `, at the end of what stands before a literal.
_NAMED = re.compile(r"""([\w.\[\]"']+)\s*(?::[^=:,({]*)?=\s*$|([\w"']+)\s*:\s*$""")
_VALUES = {"True", "False", "None"}


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal of a file, from `start` to `end` in its text, what it is now, and what it may be."""

    path: str
    name: str
    line: int
    start: int
    end: int
    present: Literal
    domain: Range | Choice


@dataclass(frozen=True, slots=True)
class _Written:
    """A literal as it stands in a line."""

    start: int
    end: int
    value: Literal


def find_constants(path: str, text: str, *, undeclared: bool = False) -> list[Constant]:
    """Those that the text declares, in their order; with `undeclared` also every other `NAME = number`.

    Raises `BadDeclaration`.
    """
    found = list(_declared(path, text))
    if undeclared:
        taken = {each.line for each in found}
        found += [each for each in _assigned(path, text) if each.line not in taken]
        found.sort(key=lambda each: each.start)
    return _numbered(found)


def _declared(path: str, text: str) -> Iterator[Constant]:
    lines = _lines(text)
    starts = _starts(lines)
    try:
        tokens = list(tokenize.generate_tokens(iter([*lines, ""]).__next__))
    except (tokenize.TokenError, SyntaxError) as error:
        line = error.args[1][0] if isinstance(error, tokenize.TokenError) else error.lineno or 1
        raise BadDeclaration(path, line, f"the file is not Python: {error.args[0]}") from None
    for number, token in enumerate(tokens):
        said = _DECLARATION.fullmatch(token.string) if token.type == tokenize.COMMENT else None
        if said is not None:
            line = token.start[0]
            try:
                domain = parse(said[1])
                one = _the_one(list(_literals(tokens[:number], line)), domain)
                domain = _fitting(domain, one.value)
            except Unfit as unfit:
                raise BadDeclaration(path, line, str(unfit)) from None
            before = starts[line - 1]
            name = _name(lines[line - 1][: one.start])
            yield Constant(path, name, line, before + one.start, before + one.end, one.value, domain)


def _literals(tokens: list[tokenize.TokenInfo], line: int) -> Iterator[_Written]:
    """The literals that begin and end in this line."""
    for number, token in enumerate(tokens):
        if not (token.start[0] == token.end[0] == line and _is_literal(token)):
            continue
        try:
            value = ast.literal_eval(token.string)
        except (ValueError, SyntaxError, MemoryError):
            continue  # such as an f-string
        start = token.start[1]
        if token.type == tokenize.NUMBER and _signed(tokens[max(0, number - 2) : number], line):
            start, value = tokens[number - 1].start[1], -value
        if isinstance(value, Literal):
            yield _Written(start, token.end[1], value)


def _is_literal(token: tokenize.TokenInfo) -> bool:
    return token.type in (tokenize.NUMBER, tokenize.STRING) or token.string in _VALUES


def _signed(before: list[tokenize.TokenInfo], line: int) -> bool:
    if not before or before[-1].string != "-" or before[-1].start[0] != line:
        return False
    earlier = before[0].string if len(before) > 1 else ""
    if earlier in _VALUES:
        return False
    return not earlier.strip() or earlier in _BEFORE_A_SIGN or keyword.iskeyword(earlier)


def _the_one(literals: list[_Written], domain: Range | Choice) -> _Written:
    if isinstance(domain, Range):
        fit = [each for each in literals if type(each.value) in (int, float)]
        what = "number"
    else:
        fit = [each for each in literals if domain.index(each.value) is not None]
        what = "literal that is one of the choices"
    if not fit:
        raise Unfit(f"there is no {what} in this line to which it could belong")
    if len(fit) > 1:
        raise Unfit(f"there is more than one {what} in this line; give each a line of its own")
    return fit[0]


def _fitting(domain: Range | Choice, value: Literal) -> Range | Choice:
    """The domain with the kind of number that stands there. The present value must lie in it."""
    if isinstance(domain, Choice):
        return domain
    assert isinstance(value, int | float)
    if isinstance(value, int) and not domain.whole:
        raise Unfit(f"{value} is a whole number and the range is not; write {value}.0, or whole bounds")
    if not domain.low <= value <= domain.high:
        raise Unfit(f"{value} lies outside of {domain.low:g}..{domain.high:g}")
    return replace(domain, whole=isinstance(value, int))


def _assigned(path: str, text: str) -> Iterator[Constant]:
    """Every number that is assigned to a plain name, with a range around it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise BadDeclaration(path, line, f"the file is not Python: {error}") from None
    lines = _lines(text)
    starts = _starts(lines)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        number = _number(value)
        if isinstance(target, ast.Name) and number is not None and value.lineno == value.end_lineno:
            line, before = lines[value.lineno - 1], starts[value.lineno - 1]
            start, end = (before + _column(line, at) for at in (value.col_offset, value.end_col_offset or 0))
            yield Constant(path, target.id, value.lineno, start, end, number, _around(number))


def _number(node: ast.expr) -> int | float | None:
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    value = inner.value if isinstance(inner, ast.Constant) else None
    if type(value) not in (int, float) or not isinstance(value, int | float) or abs(value) > 1e15:
        return None
    return -value if negative else value


def _around(number: int | float) -> Range:
    """A range for a number that nobody declared: up to ten times as much or as little, whole ones up to four times."""
    size = abs(number)
    if isinstance(number, int):
        low, high = (1, max(4, 4 * size)) if size else (0, 2)
        return Range(low, high, whole=True) if number >= 0 else Range(-high, -low, whole=True)
    if not size:
        return Range(-1.0, 1.0)
    return Range(size / 10, size * 10, log=True) if number > 0 else Range(-size * 10, -size / 10)


def _numbered(constants: list[Constant]) -> list[Constant]:
    """Constants of one name get a number, so that each can be told from the others wherever its line moves."""
    seen: Counter[str] = Counter()
    numbered = []
    for each in constants:
        seen[each.name] += 1
        again = seen[each.name]
        numbered.append(each if again == 1 else replace(each, name=f"{each.name} ({again})"))
    return numbered


def _name(before: str) -> str:
    """What the literal is assigned to, or all that stands before it in its line."""
    named = _NAMED.search(before)
    return named[1] or named[2] if named else before.strip() or "value"


def _lines(text: str) -> list[str]:
    # The line ends that Python's own readers know, and no others.
    return list(io.StringIO(text, newline=""))


def _starts(lines: list[str]) -> list[int]:
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    return starts


def _column(line: str, bytes_before: int) -> int:
    return len(line.encode()[:bytes_before].decode())
