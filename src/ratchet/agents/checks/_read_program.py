"""Reads what an engine wrote, where a trap in it can do no harm: code too deep to parse, a pattern that never ends.

A JSON object on stdin says what to read, one on stdout what was found:
`{"python": [paths], "among": [paths], "schema": path, "state": path, "schemas": {label: schema}}` and
`{"problems": [texts], "state": text or null, "functions": {path: {name: digest}}, "uses": {path: [paths]}, "parts":
{path: {name: digest}}, "words": {path: [names]}}`. The digest of a function is the same where its code is, however that
is laid out and whatever its docstring says. A file uses those of `among` that it imports or names in a text. The parts
of a file are what its tests work with, and its words the names in it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import posixpath
import stat
import sys
from pathlib import Path
from typing import Any

from ratchet.agentkit import store as schemas
from ratchet.agentkit import values
from ratchet.agentkit.errors import SchemaInvalid, StateDamaged, StateInvalid

_MOST = 5
_SHOWN = 300


class FileProblem(Exception):
    """What is wrong, with the file and the place in it."""


def main() -> None:
    wanted = json.load(sys.stdin)
    problems: list[str] = []
    functions: dict[str, dict[str, str]] = {}
    uses: dict[str, list[str]] = {}
    parts: dict[str, dict[str, str]] = {}
    words: dict[str, list[str]] = {}
    for path in wanted.get("python", []):
        try:
            tree = parsed(path)
            uses[path] = used_by(tree, wanted.get("among", []))
            parts[path], words[path] = parts_of(tree), words_of(tree)
            functions[path] = functions_of(tree)
        except FileProblem as problem:
            problems.append(str(problem))
    for label, schema in wanted.get("schemas", {}).items():
        try:
            check_schema(schema, label)
        except FileProblem as problem:
            problems.append(str(problem))
    state = None
    if "schema" in wanted:
        try:
            check_state(wanted["schema"], wanted["state"])
        except FileProblem as problem:
            state = str(problem)
    found = {"problems": problems[:_MOST], "state": state, "functions": functions, "uses": uses}
    print(json.dumps({**found, "parts": parts, "words": words}))


def parsed(path: str) -> ast.Module:
    """Raises `FileProblem` if it is no Python."""
    try:
        tree = ast.parse(Path(path).read_bytes(), path)
        compile(tree, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise FileProblem(f"{path}, line {error.lineno}: {error.msg}; fix it") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise FileProblem(
            f"{path} cannot be parsed: {error or type(error).__name__}; write it in a simpler way"
        ) from None
    return tree


def used_by(tree: ast.Module, among: list[str]) -> list[str]:
    """Those of the paths that a module imports, or names in a text: whole, by the last part or by a directory."""
    words: set[str] = set()
    modules: set[str] = set()
    for node in ast.walk(tree) if among else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(posixpath.normpath(node.value))
        elif isinstance(node, ast.Import):
            modules |= {place for each in node.names for place in _places(each.name)}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {place for each in node.names for place in _places(f"{node.module}.{each.name}")}
    return [path for path in among if path in modules or words & _spellings(path)]


def _places(module: str) -> list[str]:
    """The files that importing a module may read."""
    parts = module.split(".")
    above = ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]
    return [f"{each}{ending}" for each in above for ending in (".py", "/__init__.py")]


def _spellings(path: str) -> set[str]:
    parts = path.split("/")
    return {parts[-1], *("/".join(parts[:number]) for number in range(1, len(parts) + 1))}


def functions_of(tree: ast.Module) -> dict[str, str]:
    """The functions of a module and, as `Class.method`, of its classes, with their digests; without fixtures of pytest,
    which may be called like tests."""
    functions = {each.name: _digest(each) for each in _functions(tree.body)}
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef)]
    methods = {f"{one.name}.{each.name}": _digest(each) for one in classes for each in _functions(one.body)}
    return functions | methods


# What pytest does by itself with functions and values of these names.
_HOOKS = ("pytest", "setup", "teardown")
_RUNS = ""


def parts_of(tree: ast.Module) -> dict[str, str]:
    """What the tests of a module work with, by name, with digests: helpers, fixtures, constants, imports. What runs
    without being called, such as a fixture for all tests, is under an empty name."""
    found: dict[str, list[str]] = {}
    for node in tree.body:
        for name, part in _parts(node):
            found.setdefault(name, []).append(ast.dump(part))
            if name.startswith(_HOOKS) and not isinstance(part, ast.alias):
                found.setdefault(_RUNS, []).append(ast.dump(part))
    return {name: _hash("\n".join(parts)) for name, parts in found.items()}


def _parts(node: ast.stmt) -> list[tuple[str, ast.AST]]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            if any("autouse" in ast.unparse(each) for each in node.decorator_list):
                return [(_RUNS, node)]
            is_test = node.name.startswith("test") and bool(_functions([node]))
            return [] if is_test else [(node.name, node)]
        case ast.ClassDef() if node.name.startswith("Test"):
            head = ast.ClassDef(node.name, node.bases, node.keywords, [], node.decorator_list)
            inside = [part for each in node.body for part in _parts(each)]
            return [(node.name, head), *((f"{node.name}.{name}", part) for name, part in inside)]
        case ast.ClassDef():
            return [(node.name, node)]
        case ast.Import():
            return [(each.asname or each.name.partition(".")[0], each) for each in node.names]
        case ast.ImportFrom():
            names = [(_RUNS if each.name == "*" else each.asname or each.name) for each in node.names]
            return [
                (name, ast.ImportFrom(node.module, [each], node.level))
                for name, each in zip(names, node.names, strict=True)
            ]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [(name, node)]
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return []
        case ast.If(orelse=[]) if ast.unparse(node.test) == "__name__ == '__main__'":
            return []
        case _:
            return [(_RUNS, node)]


def words_of(tree: ast.Module) -> list[str]:
    """The names that a module uses, and those of the arguments of its functions."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return sorted(names | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)})


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if ast.get_docstring(function) is not None:
        del function.body[0]
    return _hash(ast.dump(function))


def _functions(body: list[ast.stmt]) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    functions = [each for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [each for each in functions if not any(map(_makes_fixture, each.decorator_list))]


def _makes_fixture(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called) in ("fixture", "pytest.fixture")


def check_state(schema_path: str, state_path: str) -> None:
    """Raise `FileProblem` unless one file holds the JSON Schema of an object, and the other a state that fits it."""
    schema, state = _json(schema_path), _json(state_path)
    try:
        schemas.check_state(values.plain(state), Path(schema_path))
    except SchemaInvalid as error:
        raise FileProblem(f"{schema_path}: {error}") from None
    except (StateInvalid, StateDamaged) as error:
        raise FileProblem(f"{state_path}: {error}") from None
    if schema.get("type") != "object":
        raise FileProblem(f'{schema_path} must describe an object: say "type": "object" at its top')


def check_schema(schema: object, label: str) -> None:
    """Raise `FileProblem` for what is no JSON Schema."""
    try:
        schemas.first_fault({}, json.dumps(schema).encode())
    except SchemaInvalid as error:
        raise FileProblem(f"{label}: {error}") from None


def _json(path: str) -> Any:
    """One JSON document as the standard has it: no NaN, no name twice in an object."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise FileProblem(f"{path} is not a plain file")
            return json.loads(file.read(), parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except OSError as error:
        raise FileProblem(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise FileProblem(f"{path} is not JSON: {str(error)[:_SHOWN]}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


if __name__ == "__main__":
    main()
