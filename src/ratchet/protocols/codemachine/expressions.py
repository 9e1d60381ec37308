"""What an expression stands for, found without running anything.

Understood are literals, arrays, objects, texts put together, constants of the same file, and functions of `path` that
only reckon. Whatever else there is has to be evaluated to be known, and is an error that says where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ratchet.protocols.codemachine.files import CONSTANTS, FUNCTIONS, SourcePlace, WorkspaceInvalid
from ratchet.protocols.codemachine.syntax import (
    Data,
    Foreign,
    KnownName,
    ScriptCall,
    ScriptValue,
    field,
    line_of,
    parts,
    shown,
    source_of,
    unescape,
)

if TYPE_CHECKING:
    from tree_sitter import Node

WORKFLOW_FUNCTIONS = ("resolveStep", "resolveModule", "resolveFolder", "resolveUI", "separator", "controller")
_MODULES = {"path": "path", "path/posix": "path", "url": "url", "process": "process"}
_NAMES = {*FUNCTIONS, *CONSTANTS, "Object.freeze"}
_DEEPEST = 64
_MOST_VALUES = 20_000
_LONGEST_TEXT = 64 * 1024
# Characters and values that one file may come to: constants can be doubled again and again.
_MOST_WORK = 2_000_000
_NUMBER = re.compile(
    r"(?P<whole>0|[1-9][0-9]*)|0[xX](?P<hex>[0-9a-fA-F]+)|0[oO](?P<octal>[0-7]+)|0[bB](?P<binary>[01]+)"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
)
_LONGEST_NUMBER = 400

Scope = Mapping[str, ScriptValue | WorkspaceInvalid]


class Expressions:
    """Reads the expressions of one file. `scope` holds its constants so far; one that was not understood is an error
    that is raised where the constant is used."""

    def __init__(self, file: str, location: str, scope: Scope) -> None:
        self._file = file
        self._location = location
        self._scope = scope
        self._work = 0
        self._depth = 0

    def value(self, node: Node) -> ScriptValue:
        """What can stand in an array or an object, or be exported."""
        found = self.read(node)
        if isinstance(found.data, KnownName | Foreign):
            raise self._not_understood(node)
        return found

    def read(self, node: Node) -> ScriptValue:
        """What a node stands for, functions and modules included. Raises `WorkspaceInvalid`."""
        reader = _READERS.get(node.type)
        if reader is None:
            raise self._not_understood(node)
        self._spend(node, 1)
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise self.place(node).error(f"it is nested more than {_DEEPEST} levels deep")
            return reader(self, node)
        finally:
            self._depth -= 1

    def place(self, node: Node) -> SourcePlace:
        return SourcePlace(self._file, line_of(node))

    def member(self, node: Node, owner: ScriptValue, name: str) -> ScriptValue:
        """What a module or an object has under a name."""
        match owner.data:
            case Mapping() if name in owner.data:
                return owner.data[name]
            case KnownName("path") if name in ("posix", "default"):
                return owner
            case KnownName("import.meta") if name in ("url", "filename", "dirname"):
                return self._value(node, self._of_file(name))
            case KnownName(module) if f"{module}.{name}" in CONSTANTS:
                return self._value(node, CONSTANTS[f"{module}.{name}"])
            case KnownName(module) if f"{module}.{name}" in _NAMES:
                return self._value(node, KnownName(f"{module}.{name}"))
            case Foreign() if name in WORKFLOW_FUNCTIONS:
                return self._value(node, KnownName(name))
            case Foreign(module):
                raise self.place(node).error(
                    f"{name} comes from {module!r}, which is not read", hint=_EVALUATED
                )
        raise self._not_understood(node)

    def module(self, node: Node, name: str) -> ScriptValue:
        known = _MODULES.get(name.removeprefix("node:"))
        return self._value(node, Foreign(name) if known is None else KnownName(known))

    def text(self, node: Node) -> str:
        """The text that a string literal stands for."""
        return self._unescape(node, source_of(node)[1:-1])

    def _literal(self, node: Node) -> ScriptValue:
        return self._value(node, {"true": True, "false": False}.get(node.type))

    def _string(self, node: Node) -> ScriptValue:
        return self._text(node, self.text(node))

    def _template(self, node: Node) -> ScriptValue:
        """The pieces between the holes are cut out of the source: the tree leaves out some of their white space."""
        source, first = node.text or b"", node.start_byte
        texts: list[str] = []
        start = 1
        for hole in parts(node):
            if hole.type == "template_substitution":
                texts.append(self._piece(node, source[start : hole.start_byte - first]))
                [inside] = parts(hole)
                texts.append(self._as_text(inside, self.read(inside)))
                start = hole.end_byte - first
        return self._text(node, "".join((*texts, self._piece(node, source[start:-1]))))

    def _piece(self, node: Node, raw: bytes) -> str:
        return self._unescape(node, raw.decode().replace("\r\n", "\n"))

    def _number(self, node: Node) -> ScriptValue:
        written = source_of(node).replace("_", "")
        found = _NUMBER.fullmatch(written)
        if found is None or len(written) > _LONGEST_NUMBER:
            raise self._not_understood(node)
        for kind, base in (("whole", 10), ("hex", 16), ("octal", 8), ("binary", 2)):
            if found[kind] is not None:
                return self._value(node, int(found[kind], base))
        number = float(written)
        if number == float("inf"):
            raise self.place(node).error(f"{shown(node)} is too large a number")
        return self._value(node, number)

    def _unary(self, node: Node) -> ScriptValue:
        operator, argument = field(node, "operator"), field(node, "argument")
        if operator is not None and argument is not None and operator.type in ("-", "+"):
            number = self.read(argument).data
            if isinstance(number, int | float) and not isinstance(number, bool):
                return self._value(node, -number if operator.type == "-" else number)
        raise self._not_understood(node)

    def _sum(self, node: Node) -> ScriptValue:
        """Texts put together. The left side of a long chain is nested, so that one is followed in a loop."""
        operands: list[Node] = []
        left = node
        while left.type == "binary_expression":
            operator, first, last = (field(left, name) for name in ("operator", "left", "right"))
            if operator is None or operator.type != "+" or first is None or last is None:
                raise self._not_understood(left)
            operands.append(last)
            left = first
        values = [(each, self.read(each)) for each in (left, *reversed(operands))]
        if not isinstance(values[0][1].data, str) and not (isinstance(values[1][1].data, str)):
            raise self._not_understood(node)
        return self._text(node, "".join(self._as_text(each, value) for each, value in values))

    def _array(self, node: Node) -> ScriptValue:
        items: list[ScriptValue] = []
        filled = False
        for child in node.children:
            if child.type == ",":
                if not filled:
                    raise self.place(child).error("an array must not have holes")
                filled = False
            elif child.is_named and child.type != "comment":
                filled = True
                items.extend(self._items(child))
        return self._whole(node, tuple(items), items)

    def _items(self, node: Node) -> tuple[ScriptValue, ...]:
        if node.type != "spread_element":
            return (self.value(node),)
        spread = self.value(parts(node)[0])
        match spread.data:
            case tuple() as items:
                self._spend(node, len(items))
                return items
            case ScriptCall("resolveFolder"):
                return (spread,)
        raise self._not_understood(node)

    def _object(self, node: Node) -> ScriptValue:
        entries: dict[str, ScriptValue] = {}
        for child in parts(node):
            match child.type:
                case "pair":
                    key, value = field(child, "key"), field(child, "value")
                    assert key is not None
                    assert value is not None
                    entries[self._key(key)] = self.value(value)
                case "shorthand_property_identifier":
                    entries[source_of(child)] = self.value(child)
                case "spread_element":
                    spread = self.value(parts(child)[0])
                    if not isinstance(spread.data, Mapping):
                        raise self._not_understood(child)
                    self._spend(child, len(spread.data))
                    entries.update(spread.data)
                case _:
                    raise self._not_understood(child)
        return self._whole(node, entries, list(entries.values()))

    def _key(self, node: Node) -> str:
        match node.type:
            case "property_identifier" if "\\" not in (name := source_of(node)):
                return name
            case "string":
                return self.text(node)
            case "number" if isinstance(number := self._number(node).data, int):
                return str(number)
            case "computed_property_name":
                inside = parts(node)[0]
                return self._as_text(inside, self.read(inside))
        raise self._not_understood(node)

    def _identifier(self, node: Node) -> ScriptValue:
        name = source_of(node)
        found = self._scope.get(name)
        if isinstance(found, WorkspaceInvalid):
            raise found
        if found is not None:
            return ScriptValue(found.data, self.place(node), found.size)
        if name in ("__dirname", "__filename"):
            return self._value(node, self._of_file(name.strip("_")))
        if name in ("require", "Object", "process", *WORKFLOW_FUNCTIONS):
            return self._value(node, KnownName(name))
        raise self.place(node).error(f"{name!r} is not a constant of this file", hint=_EVALUATED)

    def _meta(self, node: Node) -> ScriptValue:
        if source_of(node) != "import.meta":
            raise self._not_understood(node)
        return self._value(node, KnownName("import.meta"))

    def _member(self, node: Node) -> ScriptValue:
        owner, name = field(node, "object"), field(node, "property")
        if (
            owner is None
            or name is None
            or name.type != "property_identifier"
            or field(node, "optional_chain")
        ):
            raise self._not_understood(node)
        return self.member(node, self.read(owner), source_of(name))

    def _subscript(self, node: Node) -> ScriptValue:
        owner, index = field(node, "object"), field(node, "index")
        if owner is None or index is None or field(node, "optional_chain"):
            raise self._not_understood(node)
        holder, key = self.read(owner), self.read(index).data
        if isinstance(key, str):
            return self.member(node, holder, key)
        if isinstance(holder.data, tuple) and isinstance(key, int) and 0 <= key < len(holder.data):
            return holder.data[key]
        raise self._not_understood(node)

    def _call(self, node: Node) -> ScriptValue:
        function, arguments = field(node, "function"), field(node, "arguments")
        if function is None or arguments is None or arguments.type != "arguments":
            raise self._not_understood(node)
        called = self.read(function).data
        if not isinstance(called, KnownName):
            raise self._not_understood(node)
        given = [(each, self.read(each)) for each in parts(arguments)]
        if called.name in WORKFLOW_FUNCTIONS:
            values = [self.value(each) for each, _ in given]
            return self._whole(node, ScriptCall(called.name, tuple(values)), values)
        if called.name == "Object.freeze" and len(given) == 1:
            return given[0][1]
        texts = [self._as_text(each, value) for each, value in given]
        if called.name == "require" and len(texts) == 1:
            return self.module(node, texts[0])
        return self._reckon(node, called.name, texts)

    def _reckon(self, node: Node, name: str, texts: list[str]) -> ScriptValue:
        try:
            return self._text(node, FUNCTIONS[name](*texts))
        except (KeyError, TypeError):
            raise self._not_understood(node) from None

    def _inner(self, node: Node) -> ScriptValue:
        inside = parts(node)
        if len(inside) != 1:
            raise self._not_understood(node)
        return self.read(inside[0])

    def _of_file(self, name: str) -> str:
        directory, _, _ = self._location.rpartition("/")
        return {"dirname": directory, "filename": self._location, "url": f"file://{self._location}"}[name]

    def _as_text(self, node: Node, value: ScriptValue) -> str:
        if isinstance(value.data, str):
            return value.data
        if isinstance(value.data, int) and not isinstance(value.data, bool):
            return str(value.data)
        raise self._not_understood(node)

    def _unescape(self, node: Node, raw: str) -> str:
        self._spend(node, len(raw))
        try:
            return unescape(raw)
        except ValueError as error:
            raise self.place(node).error(f"the text {shown(node)} cannot be read: {error}") from None

    def _text(self, node: Node, text: str) -> ScriptValue:
        if len(text) > _LONGEST_TEXT:
            raise self.place(node).error(
                f"a text of {len(text)} characters; {_LONGEST_TEXT} are the most that is read"
            )
        self._spend(node, len(text))
        return self._value(node, text)

    def _whole(self, node: Node, data: Data, inside: list[ScriptValue]) -> ScriptValue:
        size = 1 + sum(each.size for each in inside)
        if size > _MOST_VALUES:
            raise self.place(node).error(
                f"it comes to {size} values; {_MOST_VALUES} are the most that is read"
            )
        return ScriptValue(data, self.place(node), size)

    def _value(self, node: Node, data: Data) -> ScriptValue:
        return ScriptValue(data, self.place(node))

    def _spend(self, node: Node, work: int) -> None:
        self._work += work
        if self._work > _MOST_WORK:
            raise self.place(node).error("the file comes to more than can be read")

    def _not_understood(self, node: Node) -> WorkspaceInvalid:
        what = node.type.replace("_", " ")
        return self.place(node).error(f"the {what} `{shown(node)}` is not understood", hint=_EVALUATED)


_EVALUATED = "nothing is evaluated: write the value itself, or a constant of this file"
_READERS: Mapping[str, Callable[[Expressions, Node], ScriptValue]] = {
    "true": Expressions._literal,
    "false": Expressions._literal,
    "null": Expressions._literal,
    "undefined": Expressions._literal,
    "string": Expressions._string,
    "template_string": Expressions._template,
    "number": Expressions._number,
    "unary_expression": Expressions._unary,
    "binary_expression": Expressions._sum,
    "array": Expressions._array,
    "object": Expressions._object,
    "identifier": Expressions._identifier,
    "shorthand_property_identifier": Expressions._identifier,
    "meta_property": Expressions._meta,
    "member_expression": Expressions._member,
    "subscript_expression": Expressions._subscript,
    "call_expression": Expressions._call,
    "parenthesized_expression": Expressions._inner,
}
