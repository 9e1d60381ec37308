"""What of a tool an author may rewrite: texts, each of which is a file in the author's workspace.

Schemas, examples, limits and permissions are no part of it: they say what is asked of every version.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_spec
from ratchet.kernel import Misuse
from ratchet.tools.definition import LlmBody, PythonBody, Tool, WorkflowBody
from ratchet.workflows.evolution.graph import GRAPH, asks_person, graph_text, read_graph, same_graph

MOST_BYTES = 256 * 1024


def same_program(one: str, other: str) -> bool:
    """Whether two Python sources differ in nothing but comments, layout and docstrings."""
    if one == other:
        return True
    try:
        return _shape(one) == _shape(other)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _shape(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


SOURCE, SYSTEM, TEMPLATE = "tool.py", "system_prompt.txt", "prompt_template.txt"


class UnusableVariant(Exception):
    """Files that are no version of the tool, with the reason."""


def parts_of(tool: Tool) -> dict[str, str]:
    """The files of a tool. Raises `Misuse` for one that cannot be rewritten or cannot be tried without consequences."""
    if tool.secrets:
        raise Misuse(
            f"the tool {tool.id} is given secrets, which a variant that no person has read must not have",
            hint="rewrite it by hand",
        )
    match tool.body:
        case PythonBody(source=source) if not tool.network:
            return {SOURCE: source}
        case PythonBody():
            raise Misuse(
                f"the tool {tool.id} uses the network, so its old calls cannot be repeated to try a variant",
                hint="rewrite it by hand; only python tools without network, llm tools and workflows evolve",
            )
        case LlmBody(system_prompt=system, prompt_template=template):
            return {SYSTEM: system or "", TEMPLATE: template or ""}
        case WorkflowBody(spec=spec) as body if not asks_person(read_spec(spec)):
            return {GRAPH: graph_text(body)}
        case WorkflowBody():
            raise Misuse(
                f"the workflow {tool.id} asks a person, so its old calls cannot be repeated to try a variant",
                hint="rewrite it by hand",
            )
    raise Misuse(
        f"the tool {tool.id} is of type {tool.type}, which Ratchet does not rewrite",
        hint="only python tools without network, llm tools and workflows evolve",
    )


def with_parts(tool: Tool, parts: Mapping[str, str]) -> Tool:
    """The tool with other texts, and everything else as it was. Raises `UnusableVariant`."""
    match tool.body:
        case PythonBody() as body:
            return tool.with_body(replace(body, source=parts[SOURCE]))
        case LlmBody() as body:
            system, template = parts[SYSTEM] or None, parts[TEMPLATE] or None
            return tool.with_body(replace(body, system_prompt=system, prompt_template=template))
        case WorkflowBody() as body:
            try:
                return tool.with_body(read_graph(body, parts[GRAPH]))
            except SpecError as error:
                raise UnusableVariant(f"{GRAPH} is no version of it: {error}") from error
    raise Misuse(f"the tool {tool.id} is of type {tool.type}, which Ratchet does not rewrite")


def read_parts(tool: Tool, directory: Path) -> dict[str, str]:
    """The files of a variant, from a checkout that may hold anything. Raises `UnusableVariant`."""
    return {name: _read(directory / name) for name in parts_of(tool)}


def same_parts(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether a variant changes nothing that matters: comments and layout of code, blanks around a prompt."""
    same = {SOURCE: same_program, GRAPH: same_graph}
    return all(same.get(name, _same_text)(one[name], other[name]) for name in one)


def _same_text(one: str, other: str) -> bool:
    return one.strip() == other.strip()


_TRIVIAL_LENGTH = 3
_TRIVIAL_NUMBER = 10


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Modules that only compute. What else is imported may see the clock, files, chance or other processes.
_COMPUTING = _names(
    """
    __future__ abc array ast base64 binascii bisect cmath collections colorsys copy csv dataclasses decimal difflib enum
    fractions functools hashlib heapq hmac html itertools json keyword math numbers operator re statistics string
    stringprep struct textwrap types typing unicodedata zlib
    """
)
_OUTWARD = _names(
    """
    open exec eval compile input breakpoint globals locals vars hash id __import__ __builtins__ __loader__ __spec__
    """
)
_OUTWARD_ATTRIBUTES = _names(
    """
    os sys _os _sys builtins modules importlib datetime __builtins__ __globals__ __subclasses__ __loader__ __spec__
    __code__ f_back f_globals
    """
)


def reached_for(source: str) -> set[str]:
    """The names in a program by which it may see more than its inputs: the clock, files, chance, other processes, or
    code that it makes itself. Empty for what is no program."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Import(names=names):
                found |= {each.name.partition(".")[0] for each in names}
            case ast.ImportFrom(module=module):
                found.add((module or "").partition(".")[0])
            case ast.Name(id=name) if name in _OUTWARD:
                found.add(name)
            case ast.Attribute(attr=name) if name in _OUTWARD_ATTRIBUTES:
                found.add(name)
    return found - _COMPUTING


def holds_answer(source: str, before: str, given: Any, expected: Any) -> bool:
    """Whether the answer to an example was written into a program or a graph: the whole input stands in it, or a part
    of the input and a part of the answer, and did not before. Values too small to tell are not looked at."""
    new = constants(source) - constants(before)
    asked, answered = set(_leaves(given)), set(_leaves(expected))
    return bool(asked and asked <= new) or bool(new & asked and new & answered)


def constants(source: str) -> set[Any]:
    """The texts and numbers that are written into a program, but for those too small to tell anything."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and _tells(node.value)}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif _tells(value):
        yield value


def _tells(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) >= _TRIVIAL_LENGTH
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= _TRIVIAL_NUMBER


def tells(values: Mapping[str, Any]) -> bool:
    """Whether an input holds a value that is not too small to tell it from others."""
    return next(_leaves(values), None) is not None


def _read(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        raise UnusableVariant(f"there is no file {path.name}")
    if path.stat().st_size > MOST_BYTES:
        raise UnusableVariant(f"{path.name} has more than {MOST_BYTES} bytes")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UnusableVariant(f"{path.name} is no text: {error}") from error
