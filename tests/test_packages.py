"""What holds for all packages: names that mean one thing, and doors that others come through."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "ratchet"


def test_no_public_name_is_that_of_a_module_which_would_take_its_place() -> None:
    taken = {}
    for package in SOURCE.rglob("__init__.py"):
        names = {
            imported.name
            for block in ast.parse(package.read_text()).body
            if isinstance(block, ast.If)
            for statement in block.body
            if isinstance(statement, ast.ImportFrom)
            for imported in statement.names
        }
        if found := names & {each.stem for each in package.parent.iterdir()}:
            taken[str(package.parent)] = found
    assert taken == {}


def test_a_public_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        path = file.relative_to(SOURCE)
        # Programs of tasks and what a new task begins with: no names of Ratchet's.
        if not {"shipped", "template"} & set(path.parts):
            for name in re.findall(r"^class ([A-Z]\w*)", file.read_text(), re.MULTILINE):
                places[name].append(str(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


# Modules that decode or shorten by themselves, and why they must.
OWN_TEXT = {
    "agentkit": "agents run without the rest of Ratchet",
    "flowkit": "exported workflows run without the rest of Ratchet",
    "workflows/export_runner": "exported workflows run without the rest of Ratchet",
    "sandbox/inside": "programs of a sandbox, which import nothing of Ratchet",
    "tools/inside": "programs of a sandbox, which import nothing of Ratchet",
    "doctor/hostile.py": "a program of a sandbox, which imports nothing of Ratchet",
    "research/shipped": "programs of tasks",
    "research/tasks/template": "what a new task begins with",
    "research/checker/hostile.py": "programs of tasks, as text",
    "research/checker/forgeries.py": "programs of tasks, as text",
    "kernel/text.py": "the one place",
    "memory/memory.py": "joins the halves of surrogate pairs, as embedding models have it",
    "protocols/codemachine/syntax.py": "joins the halves of surrogate pairs, as JavaScript has it",
    "research/sessions/context.py": "ends a part of a long text before the character that it would cut",
    "sandbox/_run.py": "detects the encoding of JSON, as `json` does",
}
LENIENT = {"replace", "ignore", "surrogateescape", "surrogatepass", "backslashreplace"}


def elsewhere(allowed: dict[str, str], words: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node of the modules with one of `words` in them, but for those that are allowed."""
    for file in SOURCE.rglob("*.py"):
        path, text = file.relative_to(SOURCE).as_posix(), file.read_text()
        if re.search(words, text) and not any(f"{path}/".startswith(f"{each}/") for each in allowed):
            for node in ast.walk(ast.parse(text)):
                yield path, node


def test_text_is_decoded_in_one_place() -> None:
    found = []
    for path, node in elsewhere(OWN_TEXT, "|".join(LENIENT)):
        if isinstance(node, ast.Call):
            called = node.func.func if isinstance(node.func, ast.Call) else node.func
            given = [*node.args, *(each.value for each in node.keywords)]
            if (
                isinstance(called, ast.Attribute)
                and called.attr in ("decode", "read_text", "getincrementaldecoder")
                and LENIENT & {each.value for each in given if isinstance(each, ast.Constant)}
            ):
                found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def test_text_is_shortened_in_one_place() -> None:
    found = []
    for path, node in elsewhere(OWN_TEXT, "…"):
        if (
            isinstance(node, ast.JoinedStr)
            and len(node.values) == 2
            and isinstance(start := node.values[0], ast.FormattedValue)
            and isinstance(start.value, ast.Subscript)
            and isinstance(start.value.slice, ast.Slice)
            and isinstance(end := node.values[1], ast.Constant)
            and end.value == "…"
        ):
            found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


# Modules that start processes by themselves, and why they must.
OWN_PROCESSES = {
    "programs.py": "the one place",
    "sandbox/nursery.py": "starts the server that forks what runs in a sandbox, and passes it descriptors",
    "sandbox/inside": "programs of a sandbox, which import nothing of Ratchet",
    "doctor/hostile.py": "a program of a sandbox, which imports nothing of Ratchet",
    "research/shipped": "programs of tasks",
    "server/supervisor.py": "forks, so that what is loaded already is shared",
    "placement/processes.py": "speaks to its processes in an event loop",
    "agentkit": "agents run without the rest of Ratchet",
    "workflows/export_runner": "exported workflows run without the rest of Ratchet",
}
STARTS = {
    "subprocess": {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "os": {"fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen", "execv", "execve", "execvp"},
}


def test_processes_are_started_in_one_place() -> None:
    found = []
    for path, node in elsewhere(OWN_PROCESSES, "|".join(STARTS)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in STARTS.get(node.value.id, ()):
                found.append(f"{path}:{node.lineno}: {node.value.id}.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and (names := STARTS.get(node.module or "")):
            found += [f"{path}:{node.lineno}: {each.name}" for each in node.names if each.name in names]
    assert found == []
