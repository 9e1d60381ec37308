"""The constants that a program declares as searchable: found in its files, and changed in place."""

from __future__ import annotations

import ast
import io
import keyword
import math
import os
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

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


class MeaninglessDeclaration(ValueError):
    """Why a declaration makes no sense; the caller that knows the place says where."""


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Numbers from `low` to `high`, both included; with `log` small ones are searched as finely as large ones."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise MeaninglessDeclaration("a range must be finite")
        if self.low >= self.high:
            raise MeaninglessDeclaration(
                f"the range {self.low:g}..{self.high:g} is empty; the smaller number comes first"
            )
        if self.log and self.low <= 0:
            raise MeaninglessDeclaration(
                f"a logarithmic range must lie above 0, and this one begins at {self.low:g}"
            )
        if self.whole and self.high > 2**53:
            raise MeaninglessDeclaration(f"{self.high:g} is more than a whole number can be here")


@dataclass(frozen=True, slots=True)
class LiteralChoice:
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


def parse(text: str) -> NumberRange | LiteralChoice:
    """What the text behind `search:` means. Raises `MeaninglessDeclaration`."""
    return _range(text) if ".." in text and '"' not in text and "'" not in text else _choice(text)


def _range(text: str) -> NumberRange:
    bounds, _, scale = text.partition(" log")
    low, _, high = (part.strip() for part in bounds.partition(".."))
    if scale.strip():
        raise MeaninglessDeclaration(f"{scale.strip()!r} is not known behind a range; only `log` is")
    whole = bool(_WHOLE.fullmatch(low) and _WHOLE.fullmatch(high))
    return NumberRange(_as_number(low), _as_number(high), log=text.endswith(" log"), whole=whole)


def _as_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise MeaninglessDeclaration(f"{text!r} is not a number") from None


def _choice(text: str) -> LiteralChoice:
    try:
        tree = ast.parse(text, mode="eval").body
        parts = _alternatives(tree)
        values = tuple(ast.literal_eval(part) for part in parts)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise MeaninglessDeclaration(f"{text!r} is neither a range nor a choice") from None
    if not all(isinstance(value, Literal) for value in values):
        raise MeaninglessDeclaration(
            f"{text!r} offers something other than numbers, texts, True, False and None"
        )
    if not 2 <= len(values) <= _MOST_OPTIONS:
        raise MeaninglessDeclaration(f"{text!r} offers {len(values)}; a choice has from 2 to {_MOST_OPTIONS}")
    if len({(type(value), value) for value in values}) < len(values):
        raise MeaninglessDeclaration(f"{text!r} offers something twice")
    return LiteralChoice(tuple(ast.get_source_segment(text, part) or "" for part in parts), values)


def _alternatives(tree: ast.expr) -> list[ast.expr]:
    """The operands of a chain of `|`, first to last."""
    parts = []
    while isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        parts.append(tree.right)
        tree = tree.left
    return [tree, *reversed(parts)]


_DECLARATION = re.compile(r"#\s*search:\s*(.*?)\s*")
# Behind one of these, or behind a keyword, a minus belongs to the number; behind anything else it subtracts.
_BEFORE_A_SIGN = {*"=([{,:+-*/%<>|&^~@", "**", "//", "==", "!=", "<=", ">=", ":=", "->"}
# `name = `, `name: float = ` and `"key": `, at the end of what stands before a literal.
_NAMED = re.compile(r"""([\w.\[\]"']+)\s*(?::[^=:,({]*)?=\s*$|([\w"']+)\s*:\s*$""")
_VALUES = {"True", "False", "None"}


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal of a file, from `start` to `end` in its text, what it is now, and what it may be.

    Where nobody declared that it is `guessed`.
    """

    path: str
    name: str
    line: int
    start: int
    end: int
    present: Literal
    domain: NumberRange | LiteralChoice
    guessed: bool = False

    @property
    def key(self) -> str:
        return f"{self.path}:{self.name}"

    def within(self, domain: NumberRange | None) -> Constant:
        """With this range in the place of a guessed one, if it has the present value in it."""
        value = self.present
        if domain is None or not self.guessed or not isinstance(value, int | float):
            return self
        fits = domain.whole == isinstance(value, int) and domain.low <= value <= domain.high
        return replace(self, domain=domain) if fits else self


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
            except MeaninglessDeclaration as unfit:
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


def _the_one(literals: list[_Written], domain: NumberRange | LiteralChoice) -> _Written:
    if isinstance(domain, NumberRange):
        fit = [each for each in literals if type(each.value) in (int, float)]
        what = "number"
    else:
        fit = [each for each in literals if domain.index(each.value) is not None]
        what = "literal that is one of the choices"
    if not fit:
        raise MeaninglessDeclaration(f"there is no {what} in this line to which it could belong")
    if len(fit) > 1:
        raise MeaninglessDeclaration(
            f"there is more than one {what} in this line; give each a line of its own"
        )
    return fit[0]


def _fitting(domain: NumberRange | LiteralChoice, value: Literal) -> NumberRange | LiteralChoice:
    """The domain with the kind of number that stands there. The present value must lie in it."""
    if isinstance(domain, LiteralChoice):
        return domain
    assert isinstance(value, int | float)
    if isinstance(value, int) and not domain.whole:
        raise MeaninglessDeclaration(
            f"{value} is a whole number and the range is not; write {value}.0, or whole bounds"
        )
    if not domain.low <= value <= domain.high:
        raise MeaninglessDeclaration(f"{value} lies outside of {domain.low:g}..{domain.high:g}")
    return replace(domain, whole=isinstance(value, int))


def _assigned(path: str, text: str) -> Iterator[Constant]:
    """Every number that is assigned to a plain name and stays so, with a range around it.

    A name that is bound again, such as a counter or the best so far, is a variable.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise BadDeclaration(path, line, f"the file is not Python: {error}") from None
    lines = _lines(text)
    starts = _starts(lines)
    for node in _fixed(tree):
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
            yield Constant(path, target.id, value.lineno, start, end, number, _around(number), guessed=True)


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def _fixed(tree: ast.Module) -> Iterator[ast.stmt]:
    """The assignments to names that are bound once in their scope and by no other one."""
    shared = {
        name for node in ast.walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names
    }
    scopes: list[ast.AST] = [tree]
    while scopes:
        waiting = list(ast.iter_child_nodes(scopes.pop()))
        inside: list[ast.AST] = []
        while waiting:
            node = waiting.pop()
            inside.append(node)
            if isinstance(node, _SCOPES):
                scopes.append(node)
            else:
                waiting += ast.iter_child_nodes(node)
        bound = Counter(
            each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        )
        for node in inside:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                names = [node.targets[0]] if isinstance(node, ast.Assign) else [node.target]
                if all(
                    isinstance(each, ast.Name) and bound[each.id] == 1 and each.id not in shared
                    for each in names
                ):
                    yield node


def _number(node: ast.expr) -> int | float | None:
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    value = inner.value if isinstance(inner, ast.Constant) else None
    if type(value) not in (int, float) or not isinstance(value, int | float) or abs(value) > 1e15:
        return None
    return -value if negative else value


def _around(number: int | float) -> NumberRange:
    """A range for a number without a declaration: up to ten times as much or as little, whole ones up to four times."""
    size = abs(number)
    if isinstance(number, int):
        low, high = (1, max(4, 4 * size)) if size else (0, 2)
        return NumberRange(low, high, whole=True) if number >= 0 else NumberRange(-high, -low, whole=True)
    if not size:
        return NumberRange(-1.0, 1.0)
    return NumberRange(size / 10, size * 10, log=True) if number > 0 else NumberRange(-size * 10, -size / 10)


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


_LARGEST = 4_000_000
_MARK = b"search:"


@dataclass(frozen=True, slots=True)
class SearchProgram:
    """The files that hold constants, by path, and the constants in them."""

    root: Path
    texts: Mapping[str, _Text]
    constants: tuple[Constant, ...]

    @classmethod
    def read(
        cls, root: Path, patterns: Sequence[str], *, undeclared: bool, go_on: Callable[[], None]
    ) -> SearchProgram:
        """Raises `BadDeclaration`, and `Misuse` where nothing is declared. `go_on` is asked before each file."""
        texts: dict[str, _Text] = {}
        constants: list[Constant] = []
        for path in _python_files(root, patterns):
            go_on()
            content = _content(root / path, path)
            if not undeclared and _MARK not in content:
                continue
            text = _Text.decode(path, content)
            found = find_constants(path, text.text, undeclared=undeclared)
            if found:
                texts[path] = text
                constants += found
        if not constants:
            raise Misuse(
                f"no constant in {', '.join(patterns)} is declared, so there is nothing to search",
                hint="write `RATE = 0.1  # search: 0.001..1 log` in the program, or use the engine `search:all`",
            )
        return cls(root, texts, tuple(constants))

    def within(self, ranges: Mapping[str, NumberRange]) -> SearchProgram:
        """With these ranges for constants that nobody declared."""
        return replace(self, constants=tuple(each.within(ranges.get(each.key)) for each in self.constants))

    def differs(self, literals: Sequence[str]) -> bool:
        """Whether any of these is worth something else than the constant that stands there."""
        return any(_changes(each, new) for each, new in zip(self.constants, literals, strict=True))

    def rewrite(self, literals: Sequence[str]) -> list[str]:
        """Put these in the place of the constants, one for each, and leave every other byte. The files that changed."""
        edits: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for each, new in zip(self.constants, literals, strict=True):
            if _changes(each, new):
                edits[each.path].append((each.start, each.end, new))
        for path, changes in edits.items():
            text = self.texts[path]
            _write(self.root / path, text.encode(_edited(text.text, changes)))
        return sorted(edits)


@dataclass(frozen=True, slots=True)
class _Text:
    """A file and how its bytes are to be read."""

    content: bytes
    text: str
    encoding: str

    @classmethod
    def decode(cls, path: str, content: bytes) -> _Text:
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
            text = content.decode(encoding)
        except (SyntaxError, UnicodeDecodeError, LookupError) as error:
            raise BadDeclaration(path, 1, f"the file cannot be read as text: {error}") from None
        decoded = cls(content, text, encoding)
        if decoded.encode(text) != content:
            raise BadDeclaration(path, 1, f"the file does not stay the same when it is read as {encoding}")
        return decoded

    def encode(self, text: str) -> bytes:
        return text.encode(self.encoding)


def _python_files(root: Path, patterns: Iterable[str]) -> Iterator[str]:
    """Paths that fit a pattern, in order. Nothing hidden, and nothing behind a link: that may lead elsewhere."""
    wanted = list(patterns)
    for directory, below, names in os.walk(root, followlinks=False):
        below[:] = sorted(name for name in below if not name.startswith((".", "__pycache__")))
        for name in sorted(names):
            path = Path(directory, name)
            relative = path.relative_to(root).as_posix()
            if any(fnmatchcase(relative, pattern) for pattern in wanted) and not path.is_symlink():
                yield relative


def _content(path: Path, shown: str) -> bytes:
    try:
        if path.stat().st_size > _LARGEST:
            raise BadDeclaration(shown, 1, f"the file is larger than {_LARGEST:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise BadDeclaration(shown, 1, f"the file cannot be read: {error.strerror}") from error


def _changes(constant: Constant, literal: str) -> bool:
    value = ast.literal_eval(literal)
    return (type(value), value) != (type(constant.present), constant.present)


def _edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _write(path: Path, content: bytes) -> None:
    # In place, so that its mode stays, and never through a link.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "wb") as file:
        file.write(content)
