"""JavaScript as a tree. The only place that knows the parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.protocols.codemachine.errors import Place

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# The parser mends broken input as well as it can, and takes the square of its length for the worst of it.
LARGEST_SCRIPT = 64 * 1024
_SHOWN = 60


def parse(content: bytes, file: str) -> Node:
    """The tree of a whole file. Raises `WorkspaceInvalid` for what is not JavaScript, `Missing` without the extra."""
    if len(content) > LARGEST_SCRIPT:
        raise Place(file).error(f"it has {len(content)} bytes; {LARGEST_SCRIPT} are the most that is read")
    try:
        source = content.decode("utf-8-sig").encode()
    except UnicodeDecodeError:
        raise Place(file).error("it is not UTF-8") from None
    root = _parser().parse(source).root_node
    if root.has_error:
        wrong = _first_error(root)
        what = f"{wrong.type!r} is missing" if wrong.is_missing else f"`{shown(wrong)}` is not understood"
        raise Place(file, line_of(wrong)).error(f"it is not valid JavaScript: {what}")
    return root


def line_of(node: Node) -> int:
    return int(node.start_point[0]) + 1


def source_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def shown(node: Node) -> str:
    """The beginning of what a node stands for, on one line."""
    text = " ".join(source_of(node)[: 4 * _SHOWN].split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


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
