"""What of this machine goes along with an export: the scripts of a program, the source of a function."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from ratchet.tools.call import ToolFailed
from ratchet.tools.definition import ExecutableBody, FunctionBody, Tool
from ratchet.tools.functions import announced_function
from ratchet.tools.purity import pure


class Unfit(Exception):
    """Why a tool cannot go along, as the end of a sentence about it."""


def carried_files(tool: Tool, body: ExecutableBody) -> dict[str, bytes]:
    """The scripts of a program by their names, as they were when the tool was added. Raises `Unfit`."""
    if "/" in body.command:
        raise Unfit(f"runs {body.command}, which lies on this machine only")
    found = {}
    for name, wanted in body.files.items():
        if tool.folder is None:
            raise Unfit(f"has the script {name}, and nobody knows in which folder")
        path = tool.folder / name
        try:
            content = path.read_bytes()
        except OSError as error:
            raise Unfit(f"has the script {name}, which cannot be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != wanted:
            raise Unfit(f"has the script {name}, which has changed since the tool was added")
        for module in _imported(content.decode(errors="replace")) if path.suffix == ".py" else ():
            if (path.parent / f"{module}.py").exists() or (path.parent / module).is_dir():
                raise Unfit(f"has the script {name}, which imports {module} from beside it")
        found[name] = content
    return found


def source_of_function(body: FunctionBody) -> tuple[str, str]:
    """The module of a function as text, and the function's name in it. Raises `Unfit`."""
    try:
        function = announced_function(body.entry)
        source = _without_marks(Path(inspect.getfile(function)).read_text(encoding="utf-8"))
    except (ToolFailed, OSError, TypeError, SyntaxError, UnicodeDecodeError) as error:
        raise Unfit(f"is a function whose source cannot be read: {error}") from error
    if inspect.iscoroutinefunction(function):
        raise Unfit("is a coroutine, which needs somebody to run it")
    defined = {each.name for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)}
    if function.__name__ not in defined:
        raise Unfit("is a function that is made while its module is loaded")
    for module in _imported(source):
        if module not in sys.stdlib_module_names:
            raise Unfit(f"is a function of a module that imports {module or 'its own package'}")
    return source, function.__name__


def _without_marks(source: str) -> str:
    """The source without `@pure`, which tells only Ratchet something."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        marks: list[ast.ImportFrom | ast.expr] = []
        if isinstance(node, ast.ImportFrom) and node.module == pure.__module__:
            marks = [node]
        elif isinstance(node, ast.FunctionDef):
            marks = [each for each in node.decorator_list if ast.unparse(each) == pure.__name__]
        for mark in marks:
            lines[mark.lineno - 1] = ""
    return "".join(lines)


def _imported(source: str) -> Iterator[str]:
    """The first part of the name of each module that a source imports; nothing for one of its own package."""
    try:
        parsed = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "" if node.level else (node.module or "").partition(".")[0]
