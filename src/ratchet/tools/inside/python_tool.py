"""Runs the Python code of a tool: JSON goes in, one JSON document comes out.

In a forked node `run_script` is called with the order. In an interpreter of its own, which has other packages or the
network, `main` reads the same order from stdin. What is printed besides the answer goes to stderr.
"""

from __future__ import annotations

import io
import json
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from types import GeneratorType, ModuleType
from typing import Any

_SHOWN = 200


class _Printed(io.BytesIO):
    """Outlasts the stream that writes to it, which a script may close or replace."""

    def close(self) -> None:
        pass


def run_script(order: dict[str, Any], leave: Callable[[Any], None] | None = None) -> Any:
    """What a script prints that finds its input on stdin: all of it, or else its last line, must be JSON.

    `leave` is told how it exits; without one, the process ends as the script wants to.
    """
    printed = _Printed()
    before = sys.stdin, sys.stdout
    sys.stdin = io.TextIOWrapper(io.BytesIO(json.dumps(order["input"]).encode()), encoding="utf-8")
    sys.stdout = io.TextIOWrapper(printed, encoding="utf-8", write_through=True)
    sys.argv = [order["name"]]
    try:
        _execute(order, "__main__")
    except SystemExit as left:
        (leave or _leave)(left.code)
    finally:
        sys.stdin, sys.stdout = before
    return last_document(printed.getvalue().decode("utf-8", "replace"))


def run_function(order: dict[str, Any]) -> Any:
    module = _execute(order, "node")
    function = module.__dict__.get(order["entry"])
    if not callable(function):
        raise TypeError(f"{order['name']} has no function {order['entry']!r}")
    return function(**order["input"])


def main() -> None:
    """The answer leaves by a descriptor of its own, so that nothing that is printed can be taken for it."""
    # Python's own way to tell of an error does not know the lines of code that is in no file.
    sys.excepthook = traceback.print_exception
    answer = os.dup(1)
    os.dup2(2, 1)
    order = json.load(sys.stdin)
    value = run_function(order) if order["entry"] else run_script(order)
    with os.fdopen(answer, "w", encoding="utf-8") as file:
        for piece in answer_pieces(value):
            file.write(piece)
            file.flush()


def answer_pieces(value: Any) -> Iterator[str]:
    """The value as JSON. What is yielded one by one becomes a list, with a line for each as it comes."""
    if not isinstance(value, GeneratorType):
        yield json.dumps(value, allow_nan=False)
        return
    opening = "["
    for each in value:
        yield f"{opening}{json.dumps(each, allow_nan=False)}\n"
        opening = ","
    yield "[]" if opening == "[" else "]"


def read_line(line: str) -> Any:
    """What was yielded, of a line of the answer. Raises `ValueError`."""
    return json.loads(line[1:])


def _execute(order: dict[str, Any], called: str) -> ModuleType:
    source, name = order["source"], order["name"]
    # For tracebacks, which show the lines of the code.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    module = ModuleType(called)
    module.__file__ = name
    sys.modules[called] = module
    exec(compile(source, name, "exec"), module.__dict__)
    return module


def _leave(code: Any) -> None:
    """Continue after an exit that means success; end as the script wants to otherwise."""
    if code is None or code == 0:
        return
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    sys.stderr.flush()
    os._exit(code & 0xFF or 1)


def last_document(printed: str) -> Any:
    """The JSON that is all of `printed`, or else its last line. Raises `ValueError`."""
    lines = printed.strip().splitlines()
    for candidate in (printed, *lines[-1:]):
        try:
            return json.loads(candidate, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
    shown = repr(lines[-1][:_SHOWN]) if lines else "nothing"
    raise ValueError(f"the last line must be a JSON document, and it printed {shown}")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


if __name__ == "__main__":
    main()
