"""A program that tells whether Python files compile. It never runs them, and writes nothing.

A question is a line of JSON, `{"file": name, "bytes": n}`, followed by the n bytes. The answer is a line of JSON, too:
`null`, or `{"line": n, "message": text}`. With `"outline": true` it is what the program is but for its looks,
`{"code": hash, "nodes": n, "branches": n}`, or `null` for one that does not compile. It is a process of its own because
the compiler can be made to take long, to use much memory and, by what is nested deeply enough, to crash.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import warnings
from typing import Any

_SECONDS = 10
_MEMORY_BYTES = 1024 * 1024 * 1024


def main() -> None:
    """Answer until no question is left."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    while header := sys.stdin.buffer.readline():
        asked = json.loads(header)
        source = sys.stdin.buffer.read(asked["bytes"])
        # Ends this process, also while it is deep inside the compiler.
        signal.alarm(_SECONDS)
        answer = outline(source) if asked.get("outline") else problem(asked["file"], source)
        signal.alarm(0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def problem(file: str, source: bytes) -> dict[str, Any] | None:
    try:
        compile(source, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        return {"line": error.lineno or 1, "message": f"{type(error).__name__}: {error.msg}"}
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        return {"line": 1, "message": f"{type(error).__name__}: {error}"}
    return None


def outline(source: bytes) -> dict[str, Any] | None:
    """What is left of a program without comments, docstrings, spaces and line numbers."""
    import ast
    import hashlib

    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    branching = (ast.If, ast.IfExp, ast.For, ast.While, ast.Try, ast.Match, ast.comprehension)
    nodes = branches = 0
    try:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            nodes += 1
            branches += isinstance(node, branching)
            if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:]
        code = hashlib.sha256(ast.dump(tree).encode(errors="surrogatepass")).hexdigest()[:32]
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return None
    return {"code": code, "nodes": nodes, "branches": branches}


if __name__ == "__main__":
    main()
