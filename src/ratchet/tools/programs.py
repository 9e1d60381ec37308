"""Tools that are processes in the sandbox: programs with their arguments, without a shell, and Python code.

It starts in a private, empty directory and sees the folder of the tool. Its inputs are in the arguments that name them
and on stdin: as JSON, or as they are if a single `prompt` is all there is.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.templates import fill
from ratchet.kernel import Misuse, decoded, text_decoder
from ratchet.observe.logs import logger
from ratchet.sandbox import (
    Bounds,
    Broken,
    CannotStart,
    Finished,
    IsolationRefused,
    Node,
    Policy,
    Stopped,
    run,
)
from ratchet.sandbox.policy import is_shown
from ratchet.tools.call import (
    LineReader,
    Occasion,
    ToolCallFailed,
    ToolResult,
    ToolUse,
    no_listener,
    variable,
)
from ratchet.tools.definition import ExecutableBody, PythonBody, Tool
from ratchet.tools.environments import ToolEnvironment, environment_for
from ratchet.tools.inside.python_tool import last_document, read_line

_log = logger(__name__)
_MIB = 1024 * 1024
_SAID = 4096
_SHOWN = 500
_MORE_MEMORY = "raise its constraints.max_memory_mb, or tools.memory_mb for all"


def report_output(occasion: Occasion, kind: str, text: str) -> None:
    """Pass `text` to the listener, if there is any. A listener that fails does not fail the call."""
    if not text:
        return
    try:
        occasion.listen(kind, {"text": text})
    except Exception as error:  # noqa: BLE001 - the tool continues, and its answer is what counts
        _log.warning("a listener to a tool failed", kind=kind, error=str(error))


SCRATCH = Path("/tmp")
"""Where a program of a tool starts: private, empty and in memory, gone afterwards."""
TIMED_OUT, NOT_FOUND = 124, 127
"""The exit codes of a shell for these two."""


def most_output(tool: Tool, occasion: Occasion) -> int:
    return tool.constraints.max_output_bytes or occasion.runtime.settings.tools.output_bytes


def bounds_for(tool: Tool, occasion: Occasion, seconds: float) -> Bounds:
    limits = tool.constraints
    memory = limits.max_memory_mb or occasion.runtime.settings.tools.memory_mb
    return Bounds(
        wall_seconds=seconds,
        memory_bytes=memory * _MIB,
        output_bytes=most_output(tool, occasion),
        file_bytes=(limits.max_db_size_mb or memory) * _MIB,
    )


def environment(*programs: Path) -> dict[str, str]:
    """The whole environment of a tool's program: nothing of ours is in it."""
    places = (*map(str, programs), str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin")
    return {
        "PATH": os.pathsep.join(dict.fromkeys(places)),
        "HOME": str(SCRATCH),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def secrets_of(tool: Tool, occasion: Occasion) -> dict[str, str]:
    """The variables that the tool asks for by name. Raises `ToolCallFailed` for one that it may not have."""
    return {name: variable(name, occasion.runtime.settings.tools) for name in tool.secrets}


def without_secrets(finished: Finished, secrets: Mapping[str, str]) -> Finished:
    """What a process said, with its name in the place of each secret: nothing of it may get into the record."""
    stdout, stderr, problem = finished.stdout, finished.stderr, finished.problem
    for name, value in secrets.items():
        shown = f"${{{name}}}"
        for shape in {value, json.dumps(value)[1:-1]}:
            stdout, stderr = (text.replace(shape.encode(), shown.encode()) for text in (stdout, stderr))
            problem = None if problem is None else problem.replace(shape, shown)
    return replace(finished, stdout=stdout, stderr=stderr, problem=problem) if secrets else finished


def as_json(value: Any) -> bytes:
    """Raises `ToolCallFailed` for inputs that are not JSON."""
    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolCallFailed(f"the inputs are not JSON: {error}", final=True) from None


def listener_to(occasion: Occasion) -> Callable[[bytes], None] | None:
    """What takes the pieces of stderr as they come; `None` if nothing listens."""
    if occasion.listen is no_listener:
        return None
    decoder = text_decoder()

    return lambda piece: report_output(occasion, "stderr", decoder.decode(piece))


def line_listener(
    occasion: Occasion, read: Callable[[str], Any] | None = None
) -> Callable[[bytes], Awaitable[None] | None] | None:
    """What takes the pieces of the answer as they come; `None` if nothing takes lines."""
    if occasion.give_line is None:
        return None
    decoder, reader = text_decoder(), LineReader(occasion.give_line, read)

    return lambda piece: reader(decoder.decode(piece))


def use_of(finished: Finished) -> ToolUse:
    code = finished.exit_code
    if finished.stopped is Stopped.WALL:
        code = TIMED_OUT
    elif finished.signal is not None:
        code = 128 + finished.signal
    return ToolUse(finished.wall_ms, finished.cpu_ms, finished.peak_bytes, code)


def said_by(finished: Finished) -> str:
    return decoded(finished.stderr[-_SAID:])


def failure_of(tool: Tool, finished: Finished, bounds: Bounds) -> ToolCallFailed:
    """Why a run that is not `ok` is none, in words, and what to do about it."""
    why, hint = _failure_reason(finished, bounds)
    return ToolCallFailed(f"tool {tool.id} {why}", hint=hint, use=use_of(finished), said=said_by(finished))


@contextlib.contextmanager
def startable(tool: Tool) -> Iterator[None]:
    """What the sandbox raises when nothing was run, or nothing is known of it, becomes `ToolCallFailed`."""
    try:
        yield
    except (IsolationRefused, CannotStart, Misuse) as error:
        raise ToolCallFailed(
            f"tool {tool.id} cannot be started: {error}", hint=error.hint, final=True
        ) from error
    except Broken as error:
        raise ToolCallFailed(f"tool {tool.id}: {error}", hint=error.hint) from error


def _failure_reason(finished: Finished, bounds: Bounds) -> tuple[str, str | None]:
    memory = f"{(bounds.memory_bytes or 0) // _MIB} MB of memory"
    match finished.stopped:
        case Stopped.WALL:
            return f"did not end within {bounds.wall_seconds:g} s", "raise its timeout, or give it less to do"
        case Stopped.MEMORY:
            return f"was killed: it used more than {memory}", _MORE_MEMORY
        case Stopped.OUTPUT:
            most = f"{bounds.output_bytes} bytes"
            return f"was killed: it printed more than {most}", "raise its constraints.max_output_bytes"
        case Stopped.PROCESSES:
            return f"was killed: it started more than {bounds.processes} processes", None
        case Stopped.CPU | Stopped.DISK | Stopped.CANCELLED:
            return f"was {finished.problem}", None
    problem, last = finished.problem or "failed", _last_line(finished)
    if finished.signal is not None:
        return f"was {problem}, which Ratchet did not send", "look whether the machine ran out of memory"
    if finished.exit_code == 1 and last.startswith("MemoryError"):
        return f"failed: it needs more than {memory}", _MORE_MEMORY
    return f"failed: {problem}" + (f": {last}" if last and last not in problem else ""), None


def _last_line(finished: Finished) -> str:
    lines = said_by(finished).strip().splitlines()
    return lines[-1][:_SHOWN] if lines else ""


PYTHONS = ("python", "python3")
"""Commands that mean the Python that runs Ratchet, or the one with the tool's packages; never one of the PATH."""
_FILE_INPUTS = ("_file", "_path")


async def call_python(
    tool: Tool, body: PythonBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    """Raises `ToolCallFailed`."""
    bounds = bounds_for(tool, occasion, seconds)
    given = secrets_of(tool, occasion)
    alone = bool(tool.requirements or tool.network or given)
    with startable(tool):
        finished = await (_run_alone if alone else _run_forked)(tool, body, values, occasion, bounds)
    finished = without_secrets(finished, given)
    if not finished.ok:
        raise failure_of(tool, finished, bounds)
    try:
        return ToolResult(finished.value, use_of(finished), said_by(finished))
    except ValueError:
        # Only from an interpreter of its own, if the code has ended it or closed what the answer leaves by.
        raise ToolCallFailed(
            f"tool {tool.id} ended without an answer", use=use_of(finished), said=said_by(finished)
        ) from None


async def _run_forked(
    tool: Tool, body: PythonBody, values: Mapping[str, Any], occasion: Occasion, bounds: Bounds
) -> Finished:
    name = f"<{tool.id}>"
    if has_function(body.source, body.entry):
        node = Node(body.source, function=body.entry, spread=True, scratch=True, file=name)
        given = as_json(values)
    else:
        node = Node(_inside(), function="run_script", scratch=True, file="<ratchet>")
        given = as_json({"source": body.source, "name": name, "input": values})
    return await run(
        node,
        stdin=given,
        bounds=bounds,
        overhear=listener_to(occasion),
        overhear_answer=line_listener(occasion, read_line),
    )


async def _run_alone(
    tool: Tool, body: PythonBody, values: Mapping[str, Any], occasion: Occasion, bounds: Bounds
) -> Finished:
    python, shown = Path(sys.executable), tuple[Path, ...]()
    if tool.requirements:
        runtime = occasion.runtime
        made = await environment_for(tool.requirements, runtime.home, runtime.settings.tools)
        python, shown = made.python, (made.directory,)
    entry = body.entry if has_function(body.source, body.entry) else None
    order = {"source": body.source, "name": f"<{tool.id}>", "entry": entry, "input": values}
    own = environment(python.parent) | secrets_of(tool, occasion)
    policy = Policy(network=tool.network, readable=shown, environment=own)
    return await run(
        [str(python), "-I", "-c", _inside()],
        cwd=SCRATCH,
        stdin=as_json(order),
        bounds=bounds,
        policy=policy,
        overhear=None if tool.secrets else listener_to(occasion),
        overhear_answer=None if tool.secrets else line_listener(occasion, read_line),
    )


@functools.lru_cache(maxsize=1024)
def has_function(source: str, name: str) -> bool:
    """Whether the code defines `name`, and so is no script. What cannot be parsed fails later, with its line."""
    try:
        parsed = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    return any(isinstance(each, ast.FunctionDef) and each.name == name for each in _statements(parsed.body))


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Those of the module, also the ones below an `if` or a `try`, but no function that is part of another thing."""
    found = list(body)
    for each in body:
        if isinstance(each, ast.If | ast.Try | ast.With):
            for part in ("body", "orelse", "finalbody"):
                found += _statements(getattr(each, part, []))
            for handler in getattr(each, "handlers", ()):
                found += _statements(handler.body)
    return found


@functools.cache
def _inside() -> str:
    return resources.files("ratchet.tools.inside").joinpath("python_tool.py").read_text()


async def call_program(
    tool: Tool, body: ExecutableBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    """What the program printed, as JSON if the tool has an output schema; else how it went, in full.

    Raises `ToolCallFailed`, with exit code 127 for a program that is not there and 124 for one that took too long. A
    program that ends with anything but 0 has failed; what it printed is in the failure's `result`.
    """
    own = None
    if tool.requirements:
        runtime = occasion.runtime
        own = await environment_for(tool.requirements, runtime.home, runtime.settings.tools)
    _check_files(tool, body)
    argv, shown = _command_line(tool, body, values, occasion, own)
    bounds = bounds_for(tool, occasion, seconds)
    given = secrets_of(tool, occasion)
    policy = Policy(
        network=tool.network,
        readable=tuple(dict.fromkeys(shown)),
        environment=environment(*([own.programs] if own else [])) | given,
    )
    with startable(tool):
        finished = await run(
            argv,
            cwd=SCRATCH,
            stdin=_stdin(values),
            bounds=bounds,
            policy=policy,
            overhear=None if given else listener_to(occasion),
            # With a schema the answer is one JSON document, of which no line means anything by itself.
            overhear_answer=None if given or tool.output_schema is not None else line_listener(occasion),
        )
    finished = without_secrets(finished, given)
    result = _result(argv, finished)
    if not finished.ok:
        failed = failure_of(tool, finished, bounds)
        failed.result = result
        raise failed
    value = result if tool.output_schema is None else _answer(tool, finished)
    return ToolResult(value, use_of(finished), said_by(finished))


def _command_line(
    tool: Tool,
    body: ExecutableBody,
    values: Mapping[str, Any],
    occasion: Occasion,
    own: ToolEnvironment | None,
) -> tuple[list[str], list[Path]]:
    """The argv, and what must be seen for it to run."""
    shown = [own.directory] if own else []
    words: dict[str, Any] = {"prompt": as_json(values).decode(), **values}
    if tool.folder is not None:
        words["tool_dir"] = str(tool.folder.resolve())
        shown.append(tool.folder.resolve())
    for name, file in files_of_inputs(values, occasion.folder).items():
        words[name] = str(file)
        shown.append(file)
    try:
        arguments = [fill(each, words) for each in body.args]
        command = fill(body.command, words)
    except StepFailed as error:
        raise ToolCallFailed(f"tool {tool.id}: {error}", hint=error.hint, final=True) from None
    program = _program(command, tool, own)
    if program is None:
        raise _absent(tool, body, command)
    if not is_shown(program.parent) and not any(map(program.is_relative_to, shown)):
        shown.append(program)
    return [str(program), *arguments], shown


def _program(command: str, tool: Tool, own: ToolEnvironment | None) -> Path | None:
    """The program that a command names, if there is one that can be run."""
    if command in PYTHONS:
        return own.python if own else Path(sys.executable)
    if os.sep in command:
        path = Path(command) if tool.folder is None else tool.folder.resolve() / command
        return path.resolve() if path.is_file() and os.access(path, os.X_OK) else None
    if own is not None and (found := shutil.which(command, path=str(own.programs))):
        return Path(found)
    found = shutil.which(command)
    if found is None:
        return None
    path = Path(found).absolute()
    # Of a link that the sandbox does not show, what it leads to is run.
    return path if is_shown(path.parent) else path.resolve()


def _absent(tool: Tool, body: ExecutableBody, command: str) -> ToolCallFailed:
    hint = f"install it: {body.install_command}" if body.install_command else f"install {command}"
    said = f"{command}: not found; {hint}"
    return ToolCallFailed(
        f"tool {tool.id}: the command {command!r} is not there",
        hint=hint,
        use=ToolUse(exit_code=NOT_FOUND),
        said=said,
        final=True,
        result=_process_result(False, NOT_FOUND, "", said, command),
    )


def files_of_inputs(values: Mapping[str, Any], folder: Path | None) -> dict[str, Path]:
    """The files that inputs of a program name, by the names of the inputs."""
    named = {name: _file_of(value, folder) for name, value in values.items() if name.endswith(_FILE_INPUTS)}
    return {name: file for name, file in named.items() if file is not None}


def _file_of(value: Any, folder: Path | None) -> Path | None:
    """The file that an input names, if it lies in the folder of the workflow: nothing else of the machine is shown."""
    if not isinstance(value, str) or folder is None or not value or "\0" in value:
        return None
    path = (folder / value).resolve()
    return path if path.is_relative_to(folder.resolve()) and path.exists() else None


def _check_files(tool: Tool, body: ExecutableBody) -> None:
    """A version of a tool is its files as well: what is run must be what was added."""
    for name, wanted in body.files.items():
        path = (tool.folder or Path()) / name
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise ToolCallFailed(
                f"tool {tool.id}: its file {name} cannot be read: {error.strerror}",
                hint="put it back, or add the tool again",
                final=True,
            ) from None
        if found != wanted:
            raise ToolCallFailed(
                f"tool {tool.id}: its file {name} is not the one that this version was made of",
                hint="add the tool again, which makes a new version",
                final=True,
            )


def _stdin(values: Mapping[str, Any]) -> bytes:
    if values.keys() == {"prompt"} and isinstance(values["prompt"], str):
        return values["prompt"].encode(errors="replace")
    return as_json(values)


def _result(argv: list[str], finished: Finished) -> dict[str, Any]:
    stdout, stderr = (decoded(each) for each in (finished.stdout, finished.stderr))
    return _process_result(finished.ok, use_of(finished).exit_code, stdout, stderr, shlex.join(argv))


def _process_result(
    success: bool, code: int | None, stdout: str, stderr: str, command: str
) -> dict[str, Any]:
    return {
        "success": success,
        "exit_code": code,
        "stdout": stdout,
        "stderr": stderr,
        "command": command,
    }


def _answer(tool: Tool, finished: Finished) -> Any:
    try:
        return last_document(decoded(finished.stdout))
    except ValueError as error:
        raise ToolCallFailed(
            f"tool {tool.id} has an output schema, but {error}",
            use=use_of(finished),
            said=said_by(finished),
        ) from None
