"""JavaScript as a tree, and its literals as values that remember their place. Only this module knows the parser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ratchet.kernel import decoded, shortened
from ratchet.protocols.codemachine.files import SourcePlace

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


@dataclass(frozen=True, slots=True)
class KnownName:
    """Something of the language or of a module that is understood, by its name: `path`, `path.join`, `resolveStep`."""

    name: str


@dataclass(frozen=True, slots=True)
class Foreign:
    """A module that is not read. Only what it may hand on by name can be used."""

    module: str


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A function of workflow files with what it is given, such as `resolveStep('plan', {…})`. Nothing is called."""

    function: str
    arguments: tuple[ScriptValue, ...]


Data = (
    None
    | bool
    | int
    | float
    | str
    | tuple["ScriptValue", ...]
    | Mapping[str, "ScriptValue"]
    | ScriptCall
    | KnownName
    | Foreign
)


@dataclass(frozen=True, slots=True)
class ScriptValue:
    """`size` counts everything inside, each time that it is there: a constant used twice counts twice."""

    data: Data
    place: SourcePlace
    size: int = 1


def plain(value: ScriptValue) -> Any:
    """The same without places, as JSON has it. Raises `WorkspaceInvalid` for what JSON does not have."""
    match value.data:
        case tuple() as items:
            return [plain(each) for each in items]
        case Mapping() as entries:
            return {name: plain(each) for name, each in entries.items()}
        case ScriptCall(function):
            raise value.place.error(f"{function}(…) has no meaning here")
        case KnownName(name) | Foreign(name):
            raise value.place.error(f"{name} is not a value")
        case simple:
            return simple


# The parser fixes broken input as well as it can, and takes the square of its length for the worst of it.
LARGEST_SCRIPT = 64 * 1024
_SHOWN = 60


def parse(content: bytes, file: str) -> Node:
    """The tree of a whole file. Raises `WorkspaceInvalid` for what is not JavaScript, `Missing` without the extra."""
    if len(content) > LARGEST_SCRIPT:
        raise SourcePlace(file).error(
            f"it has {len(content)} bytes; {LARGEST_SCRIPT} are the most that is read"
        )
    try:
        source = content.decode("utf-8-sig").encode()
    except UnicodeDecodeError:
        raise SourcePlace(file).error("it is not UTF-8") from None
    root = _parser().parse(source).root_node
    if root.has_error:
        wrong = _first_error(root)
        what = f"{wrong.type!r} is missing" if wrong.is_missing else f"`{shown(wrong)}` is not understood"
        raise SourcePlace(file, line_of(wrong)).error(f"it is not valid JavaScript: {what}")
    return root


def line_of(node: Node) -> int:
    return int(node.start_point[0]) + 1


def source_of(node: Node) -> str:
    return decoded(node.text or b"")


def shown(node: Node) -> str:
    """The beginning of what a node stands for, on one line."""
    text = " ".join(source_of(node)[: 4 * _SHOWN].split())
    return shortened(text, _SHOWN)


def parts(node: Node) -> list[Node]:
    """What a node is made of, without comments and punctuation."""
    return [each for each in node.named_children if each.type != "comment"]


def field(node: Node, name: str) -> Node | None:
    return node.child_by_field_name(name)


def _first_error(root: Node) -> Node:
    """The innermost broken node that comes first. Goes down without recursion: broken trees may be deep."""
    found = root
    while not found.is_missing:
        inner = next((each for each in found.children if each.has_error or each.is_missing), None)
        if inner is None:
            break
        found = inner
    return found


def _parser() -> Parser:
    try:
        import tree_sitter_javascript
        from tree_sitter import Language, Parser
    except ModuleNotFoundError as error:
        from ratchet.extras import missing

        raise missing("codemachine", "reading a CodeMachine workspace") from error
    return Parser(Language(tree_sitter_javascript.language()))


_SIMPLE = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_ESCAPE = re.compile(
    r"\\(?:u\{(?P<braces>[0-9A-Fa-f]{1,6})\}|u(?P<four>[0-9A-Fa-f]{4})|x(?P<two>[0-9A-Fa-f]{2})"
    r"|(?P<end>\r\n|[\n\r\u2028\u2029])|(?P<zero>0)(?![0-9])|(?P<other>[^ux0-9]))",
    re.DOTALL,
)


def unescape(raw: str) -> str:
    """The text that `raw` stands for. Raises `ValueError` for an escape that it does not know."""
    units: list[str] = []
    at = 0
    while (found := raw.find("\\", at)) >= 0:
        units.append(raw[at:found])
        escape = _ESCAPE.match(raw, found)
        if escape is None:
            raise ValueError(f"the escape {raw[found : found + 6]!r} is not known")
        units.append(_meaning(escape))
        at = escape.end()
    text = "".join((*units, raw[at:]))
    try:
        # Two halves of a pair become the one character that they stand for.
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ValueError("it has one half of a surrogate pair without the other") from None


def _meaning(escape: re.Match[str]) -> str:
    digits = escape["braces"] or escape["four"] or escape["two"]
    if digits is not None:
        if int(digits, 16) > 0x10FFFF:
            raise ValueError(f"\\u{{{digits}}} is no character")
        return chr(int(digits, 16))
    if escape["end"] is not None:
        return ""
    return _SIMPLE.get(escape["zero"] or escape["other"], escape["other"])
