"""A script of a workspace: its imports, its constants, and what it exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratchet.protocols.codemachine.expressions import Expressions
from ratchet.protocols.codemachine.files import SourcePlace, WorkspaceInvalid
from ratchet.protocols.codemachine.syntax import ScriptValue, field, line_of, parse, parts, shown, source_of

if TYPE_CHECKING:
    from tree_sitter import Node

_DECLARED = ("function_declaration", "generator_function_declaration", "class_declaration")


@dataclass(frozen=True, slots=True)
class WorkspaceScript:
    """What a file hands on: one thing by default, or several by name."""

    file: str
    default: ScriptValue | None
    named: Mapping[str, ScriptValue]

    @property
    def exported(self) -> ScriptValue:
        """All that it exports, as one value. Raises `WorkspaceInvalid` when that is nothing."""
        if self.default is not None:
            return self.default
        if not self.named:
            raise SourcePlace(self.file).error(
                "it exports nothing", hint="write `export default …` or `module.exports = …`"
            )
        size = 1 + sum(each.size for each in self.named.values())
        return ScriptValue(self.named, next(iter(self.named.values())).place, size)


def read_script(content: bytes, file: str, location: str) -> WorkspaceScript:
    """Read a file without running it. `location` is its path as the script itself may name it.

    Raises `WorkspaceInvalid` with the line of the first thing that is not understood.
    """
    reader = _Statements(file, location)
    for statement in parts(parse(content, file)):
        reader.read(statement)
    return WorkspaceScript(file, reader.exports.pop("default", None), reader.exports)


class _Statements:
    def __init__(self, file: str, location: str) -> None:
        self._file = file
        self._scope: dict[str, ScriptValue | WorkspaceInvalid] = {}
        self._expressions = Expressions(file, location, self._scope)
        self.exports: dict[str, ScriptValue] = {}

    def read(self, node: Node) -> None:
        match node.type:
            case "lexical_declaration" | "variable_declaration":
                self._declare(node)
            case "import_statement":
                self._import(node)
            case "export_statement":
                self._export(node)
            case "expression_statement" if len(parts(node)) == 1:
                self._express(parts(node)[0])
            case kind if kind in _DECLARED:
                # Only to be called is a harm; an unused one is none.
                name = field(node, "name")
                assert name is not None
                self._bind(name, self._not_understood(node))
            case "empty_statement" | "hash_bang_line":
                pass
            case _:
                raise self._not_understood(node)

    def _declare(self, node: Node) -> list[str]:
        """Bind the names of a declaration. What is not understood is an error only where the name is used."""
        names: list[str] = []
        for each in parts(node):
            target, value = field(each, "name"), field(each, "value")
            if each.type != "variable_declarator" or target is None or value is None:
                raise self._not_understood(each)
            try:
                found: ScriptValue | WorkspaceInvalid = self._expressions.read(value)
            except WorkspaceInvalid as error:
                found = error
            names += self._assign(target, found)
        return names

    def _assign(self, target: Node, found: ScriptValue | WorkspaceInvalid) -> list[str]:
        if target.type == "identifier":
            self._bind(target, found)
            return [source_of(target)]
        if target.type != "object_pattern":
            raise self._not_understood(target)
        return [self._take_out(each, found) for each in parts(target)]

    def _take_out(self, node: Node, found: ScriptValue | WorkspaceInvalid) -> str:
        """One name of `const { join, resolve: absolute } = …`."""
        if node.type == "shorthand_property_identifier_pattern":
            key = name = node
        else:
            inner, target = field(node, "key"), field(node, "value")
            if node.type != "pair_pattern" or inner is None or target is None or target.type != "identifier":
                raise self._not_understood(node)
            key, name = inner, target
        self._bind(name, self._of(key, found, source_of(key)))
        return source_of(name)

    def _import(self, node: Node) -> None:
        source, clause = field(node, "source"), next(iter(parts(node)), None)
        if source is None or clause is None or clause.type != "import_clause":
            raise self._not_understood(node)
        module = self._expressions.module(node, self._expressions.text(source))
        for each in parts(clause):
            match each.type:
                case "identifier":
                    self._bind(each, module)
                case "namespace_import":
                    self._bind(parts(each)[0], module)
                case "named_imports":
                    for specifier in parts(each):
                        name, alias = field(specifier, "name"), field(specifier, "alias")
                        assert name is not None
                        self._bind(alias or name, self._of(name, module, source_of(name)))
                case _:
                    raise self._not_understood(each)

    def _export(self, node: Node) -> None:
        value, declaration = field(node, "value"), field(node, "declaration")
        if value is not None:
            self._hand_on(node, "default", self._expressions.value(value))
        elif declaration is not None and declaration.type == "lexical_declaration":
            for name in self._declare(declaration):
                self._hand_on(node, name, self._constant(node, name))
        elif (clause := next(iter(parts(node)), None)) is not None and clause.type == "export_clause":
            if field(node, "source") is not None:
                raise self._not_understood(node)
            for each in parts(clause):
                name_node, alias = field(each, "name"), field(each, "alias")
                assert name_node is not None
                value_of = self._constant(each, source_of(name_node))
                self._hand_on(each, source_of(alias or name_node), value_of)
        else:
            raise self._not_understood(node)

    def _express(self, node: Node) -> None:
        if node.type == "string":
            # A directive, such as 'use strict'.
            return
        target, value = field(node, "left"), field(node, "right")
        if node.type != "assignment_expression" or target is None or value is None:
            raise self._not_understood(node)
        words = source_of(target).split(".")
        match words:
            case ["module", "exports"]:
                self._hand_on(node, "default", self._expressions.value(value))
            case ["exports", name] | ["module", "exports", name] if name.isidentifier():
                self._hand_on(node, name, self._expressions.value(value))
            case _:
                raise self._not_understood(node)

    def _hand_on(self, node: Node, name: str, value: ScriptValue) -> None:
        if name in self.exports:
            raise SourcePlace(self._file, line_of(node)).error(f"{name} is exported twice")
        self.exports[name] = value

    def _constant(self, node: Node, name: str) -> ScriptValue:
        found = self._scope.get(name)
        if isinstance(found, WorkspaceInvalid):
            raise found
        if found is None:
            raise SourcePlace(self._file, line_of(node)).error(f"{name!r} is not a constant of this file")
        return found

    def _of(
        self, node: Node, owner: ScriptValue | WorkspaceInvalid, name: str
    ) -> ScriptValue | WorkspaceInvalid:
        if isinstance(owner, WorkspaceInvalid):
            return owner
        try:
            return self._expressions.member(node, owner, name)
        except WorkspaceInvalid as error:
            return error

    def _bind(self, node: Node, found: ScriptValue | WorkspaceInvalid) -> None:
        name = source_of(node)
        if name in self._scope:
            raise SourcePlace(self._file, line_of(node)).error(f"{name!r} is declared twice")
        self._scope[name] = found

    def _not_understood(self, node: Node) -> WorkspaceInvalid:
        what = node.type.replace("_", " ")
        return SourcePlace(self._file, line_of(node)).error(
            f"the {what} `{shown(node)}` is not understood",
            hint="nothing is run: keep to constants and one export",
        )
