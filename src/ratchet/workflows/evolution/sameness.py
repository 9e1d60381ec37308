"""Whether two programs do the same because they are the same."""

from __future__ import annotations

import ast


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
