"""Counting what a recipe holds, without running it. A node: a source that brings its reader down takes nothing along.

It is given the files of a recipe by their paths, each byte as one character.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Iterator

_HITS = 40
_LARGEST = 10**15
# Data that is written into a program: so many numbers, or so long a text, in one place.
_MANY = 1000
_CONVOLUTIONS = {"Conv1d": 1, "Conv2d": 2, "Conv3d": 3}
_KINDS = ("Linear", "Embedding", *_CONVOLUTIONS)


def count(files: dict[str, str]) -> dict[str, object]:
    """The parameters of the layers whose sizes are written down, and the data that is written into the program."""
    warnings.simplefilter("ignore")
    by_kind: dict[str, int] = {}
    by_file: dict[str, int] = {}
    hits: list[dict[str, object]] = []
    unknown: list[dict[str, object]] = []
    numbers = characters = 0
    for path, text in files.items():
        tree = ast.parse(text.encode("latin-1"), path)
        known = _constants(tree)
        for kind, call in _layers(tree):
            parameters = _parameters(kind, call, known)
            where: dict[str, object] = {"file": path, "line": call.lineno, "kind": kind}
            if parameters is None:
                unknown.append(where)
                continue
            by_kind[kind] = by_kind.get(kind, 0) + parameters
            by_file[path] = by_file.get(path, 0) + parameters
            hits.append({**where, "parameters": parameters})
        numbers += sum(_long_lists(tree))
        characters += sum(_long_texts(tree))
    return {
        "total": sum(by_kind.values()),
        "by_kind": by_kind,
        "by_file": by_file,
        "layers": hits[:_HITS],
        "sizes_not_written_down": unknown[:_HITS],
        "numbers_in_long_lists": numbers,
        "characters_in_long_texts": characters,
    }


def _layers(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = (
                called.attr
                if isinstance(called, ast.Attribute)
                else called.id
                if isinstance(called, ast.Name)
                else ""
            )
            if name in _KINDS:
                yield name, node


def _parameters(kind: str, call: ast.Call, known: dict[str, int]) -> int | None:
    """How many one layer has, if all that decides it is written down."""
    named = {each.arg: each.value for each in call.keywords if each.arg}

    def size(position: int, *names: str) -> int | None:
        found = [named[name] for name in names if name in named]
        if position < len(call.args):
            found.append(call.args[position])
        return _whole(found[0], known) if found else None

    if kind == "Embedding":
        rows, columns = size(0, "num_embeddings"), size(1, "embedding_dim")
        return None if rows is None or columns is None else rows * columns
    inputs = size(0, "in_features", "in_channels")
    outputs = size(1, "out_features", "out_channels")
    if inputs is None or outputs is None:
        return None
    bias = 0 if _is_false(named.get("bias")) else outputs
    if kind == "Linear":
        return inputs * outputs + bias
    kernel = named.get("kernel_size") or (call.args[2] if len(call.args) > 2 else None)
    area = None if kernel is None else _area(kernel, _CONVOLUTIONS[kind], known)
    groups = _whole(named["groups"], known) if "groups" in named else 1
    return None if area is None or not groups else inputs // groups * outputs * area + bias


def _area(kernel: ast.expr, dimensions: int, known: dict[str, int]) -> int | None:
    if isinstance(kernel, ast.Tuple | ast.List):
        sides = [_whole(each, known) for each in kernel.elts]
        return None if None in sides else math.prod(side for side in sides if side is not None)
    side = _whole(kernel, known)
    return None if side is None else side**dimensions


def _constants(tree: ast.Module) -> dict[str, int]:
    """Whole numbers that have a name at the top of the module, and keep it."""
    known: dict[str, int] = {}
    twice: set[str] = set()
    for node in tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], _whole(node.value, known)
        if isinstance(target, ast.Name):
            if target.id in known:
                twice.add(target.id)
            elif value is not None:
                known[target.id] = value
    return {name: value for name, value in known.items() if name not in twice}


def _whole(node: ast.expr, known: dict[str, int]) -> int | None:
    """The whole number that an expression comes to without being run, if it does."""
    value: int | None = None
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            value = number
        case ast.Name(id=name):
            value = known.get(name)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Add() | ast.Sub() | ast.FloorDiv() as op, right=right):
            first, second = _whole(left, known), _whole(right, known)
            if first is not None and second is not None:
                value = _combined(op, first, second)
    return value if value is not None and 0 <= value <= _LARGEST else None


def _combined(op: ast.operator, first: int, second: int) -> int | None:
    match op:
        case ast.Mult():
            return first * second
        case ast.Add():
            return first + second
        case ast.Sub():
            return first - second
        case _:
            return first // second if second else None


def _is_false(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _long_lists(tree: ast.AST) -> Iterator[int]:
    """The numbers in each list that holds many, those in lists inside it counted with it."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.List | ast.Tuple) or id(node) in inside:
            continue
        below = list(ast.walk(node))
        numbers = sum(
            isinstance(each, ast.Constant) and type(each.value) in (int, float, complex) for each in below
        )
        inside.update(map(id, below))
        if numbers >= _MANY:
            yield numbers


def _long_texts(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str | bytes)
            and len(node.value) >= _MANY
        ):
            yield len(node.value)
