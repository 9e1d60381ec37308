"""Executable tools: a program that is there already, or a script that came with the export."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.execution import Result, StepCall
from ratchet.flowkit.executor import task_group
from ratchet.flowkit.spec import ToolDefinition
from ratchet.flowkit.templates import fill, prompt_of
from ratchet.tools.call import ToolCallFailed
from ratchet.tools.inside import python_tool
from ratchet.tools.openapi import find_operation, question, server_of

from .models import ModelRequest, ServerUnreachable, ask, ask_for_json, endpoint_of, send

AUTH_KEYS = frozenset({"type", "variable", "name", "in"})
AUTH_TYPES = ("bearer", "basic", "api_key", "none")
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
OUTPUT_BYTES = 1_048_576
_SHOWN_CHARS = 300
_SHOWN_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TEMP", "SYSTEMROOT")
_PIECE = 65_536
_SAID_BYTES = 65_536
PYTHONS = ("python", "python3")
NOT_FOUND = 127
_WITHOUT_PROCESSES = ("emscripten", "wasi")
_FILE_INPUTS = ("_file", "_path")


async def call_model(
    call: StepCall, tool: ToolDefinition | None, models: Mapping[str, str], seconds: float
) -> Result:
    """What the model says to the prompt of the step, or to that of the tool. Raises `StepFailed`."""
    began = time.monotonic()
    body: Mapping[str, Any] = {} if tool is None else tool.extra.get("llm", {})
    name = model_name(body)
    if name not in models:
        raise StepFailed(f"no model is chosen for {name or 'the default'!r}", final=True)
    provider, _, model = models[name].partition("/")
    prompt = call.prompt
    if prompt is None:
        prompt = (
            call.step.description if tool is None else prompt_of(body.get("prompt_template"), call.values)
        )
    question = ModelRequest(
        model,
        prompt,
        body.get("system_prompt"),
        body.get("temperature"),
        None if tool is None else tool.extra.get("output_schema"),
        body.get("max_tokens"),
    )
    endpoint = endpoint_of(provider, os.environ)
    value: Any
    if question.schema is None:
        answer = await ask(endpoint, question, seconds)
        value, tokens = answer.text, answer.tokens
    else:
        value, tokens = await ask_for_json(endpoint, question, seconds)
    return Result(value, {"wall_ms": (time.monotonic() - began) * 1000, "tokens": tokens})


def model_name(body: Mapping[str, Any]) -> str:
    """By what name the table of models knows whom a tool asks; nothing is the default."""
    return body.get("model") or ".".join(filter(None, (body.get("role"), body.get("tier"))))


async def call_service(tool: ToolDefinition, values: Mapping[str, Any], seconds: float) -> Result:
    """What the service answers, as JSON if it is that, else as text. Raises `StepFailed`."""
    body = tool.extra["openapi"]
    given = {name: value for name, value in values.items() if name != "operation"}
    wanted = values.get("operation", body.get("operation"))
    try:
        asked = question(find_operation(body.get("spec"), wanted if isinstance(wanted, str) else None), given)
    except ToolCallFailed as failed:
        raise StepFailed(f"tool {tool.tool_id}: {failed}", final=True, hint=failed.hint) from failed
    who = _credentials(body.get("auth") or {})
    base = str(body.get("base_url") or server_of(body.get("spec"))).rstrip("/")
    parameters = urlencode([*asked.query, *who.query])
    url = f"{base}{asked.path}" + (f"{'&' if '?' in base else '?'}{parameters}" if parameters else "")
    content = None if asked.body is None else json.dumps(asked.body, allow_nan=False).encode()
    typed = {} if content is None else {"content-type": "application/json"}
    headers = {"accept": "application/json", **typed, **asked.headers, **who.headers}
    most = tool.extra.get("constraints", {}).get("max_output_bytes", OUTPUT_BYTES)
    began = time.monotonic()
    try:
        answer = await send(asked.method, url, headers, content, seconds=seconds, most=most)
    except ServerUnreachable as error:
        reason = who.hide(str(error))
        raise StepFailed(f"tool {tool.tool_id}: the service cannot be reached: {reason}") from None
    metrics: dict[str, object] = {"wall_ms": (time.monotonic() - began) * 1000}
    text = answer.content.decode(errors="replace")
    if not 200 <= answer.status < 300:
        raise StepFailed(
            f"tool {tool.tool_id}: the service answered HTTP {answer.status}: {who.hide(text)[:_SHOWN_CHARS]}",
            final=answer.status not in _BUSY,
            metrics=metrics,
        )
    return Result(_value(tool, text, answer.kind), metrics)


@dataclass(frozen=True)
class _Credentials:
    """What shows who asks."""

    headers: Mapping[str, str] = field(default_factory=dict)
    query: tuple[tuple[str, str], ...] = ()
    secret: str = ""

    def hide(self, text: str) -> str:
        return text.replace(self.secret, "…") if self.secret else text


def _credentials(auth: Mapping[str, Any]) -> _Credentials:
    kind = auth.get("type", "bearer" if auth else "none")
    if kind == "none":
        return _Credentials()
    variable = auth["variable"]
    secret = os.environ.get(variable, "").strip()
    if not secret:
        raise StepFailed(f"the variable {variable} is not set", final=True, hint=f"export {variable}=…")
    if kind == "api_key" and auth.get("in") == "query":
        return _Credentials(query=((auth.get("name", "api_key"), secret),), secret=secret)
    if kind == "api_key":
        return _Credentials({auth.get("name", "X-API-Key"): secret}, secret=secret)
    shown = secret if kind == "bearer" else base64.b64encode(secret.encode()).decode()
    return _Credentials({"authorization": f"{kind.capitalize()} {shown}"}, secret=secret)


def _value(tool: ToolDefinition, text: str, kind: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        if "json" in kind:
            raise StepFailed(
                f"tool {tool.tool_id}: the service says that it sends JSON, but sends {text[:_SHOWN_CHARS]!r}"
            ) from None
        return text


async def call_python(
    tool: ToolDefinition, values: Mapping[str, Any], folder: Path, seconds: float
) -> Result:
    """Raises `StepFailed`."""
    body = tool.extra["python"]
    order = {
        "source": tool.source_code,
        "name": f"<{tool.tool_id}>",
        "entry": None if body.get("script") else body["entry"],
        "input": dict(values),
    }
    argv = [sys.executable, "-I", str(python_tool.__file__)]
    if sys.platform in _WITHOUT_PROCESSES:
        return _call_inside(tool, order)
    finished = await run(tool, argv, json.dumps(order).encode(), folder, seconds)
    try:
        value = json.loads(finished.stdout)
    except ValueError:
        raise StepFailed(
            f"tool {tool.tool_id} ended without an answer", metrics=metrics_of(finished)
        ) from None
    return Result(value, metrics_of(finished))


def _call_inside(tool: ToolDefinition, order: dict[str, Any]) -> Result:
    """The same where there are no processes, as in WebAssembly: in this one, with a module of its own each time."""

    def leave(code: Any) -> None:
        if code:
            raise StepFailed(f"tool {tool.tool_id} failed: exit code {code}")

    began = time.monotonic()
    try:
        # As JSON on both ways: nothing that it is given or gives is shared with it.
        given = json.loads(json.dumps(order))
        with contextlib.redirect_stdout(sys.stderr):
            made = python_tool.run_function(given) if order["entry"] else python_tool.run_script(given, leave)
            text = "".join(python_tool.answer_pieces(made))
    except StepFailed:
        raise
    except SystemExit as left:
        raise StepFailed(f"tool {tool.tool_id} failed: exit code {left.code}") from None
    except Exception as error:
        raise StepFailed(
            f"tool {tool.tool_id} failed: {type(error).__name__}: {error}"[:_SHOWN_CHARS]
        ) from error
    most = tool.extra.get("constraints", {}).get("max_output_bytes", OUTPUT_BYTES)
    if len(text) > most:
        raise StepFailed(f"tool {tool.tool_id} wrote more than {most} bytes")
    return Result(json.loads(text), {"wall_ms": (time.monotonic() - began) * 1000, "exit_code": 0})


async def run(
    tool: ToolDefinition,
    argv: list[str],
    given: bytes,
    folder: Path,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> ProgramResult:
    """How the program of a tool ended, if it ended well. Raises `StepFailed`."""
    most = tool.extra.get("constraints", {}).get("max_output_bytes", OUTPUT_BYTES)
    try:
        finished = await run_program(
            argv, given, folder=folder, seconds=seconds, output_bytes=most, environment=environment
        )
    except ProgramStopped as stopped:
        raise StepFailed(f"tool {tool.tool_id} {stopped}", metrics={"exit_code": 124}) from None
    if finished.exit_code != 0:
        last = next((line for line in reversed(finished.said.splitlines()) if line.strip()), "")
        raise StepFailed(
            f"tool {tool.tool_id} failed: {last.strip()[:_SHOWN_CHARS] or f'exit code {finished.exit_code}'}",
            metrics=metrics_of(finished),
        )
    return finished


def metrics_of(finished: ProgramResult) -> dict[str, Any]:
    return {"wall_ms": finished.wall_ms, "exit_code": finished.exit_code}


class ProgramStopped(Exception):
    """It took too long or said too much."""


@dataclass(frozen=True)
class ProgramResult:
    """`said` is the end of what it wrote to stderr."""

    exit_code: int
    stdout: bytes
    said: str
    wall_ms: float


async def run_program(
    argv: Sequence[str],
    given: bytes,
    *,
    folder: Path,
    seconds: float,
    output_bytes: int,
    environment: Mapping[str, str] | None = None,
) -> ProgramResult:
    """Raises `ProgramStopped`, and `FileNotFoundError` or `PermissionError` for a program that is not there."""
    began = time.monotonic()
    shown = {name: os.environ[name] for name in _SHOWN_VARIABLES if name in os.environ}
    async with _started(argv, folder, {**shown, **(environment or {})}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with asyncio.timeout(seconds):
                # The first that raises ends the others: a flood is stopped while it is still running.
                async with task_group() as group:
                    group.create_task(_feed(process.stdin, given))
                    answer = group.create_task(_read(process.stdout, output_bytes))
                    said = group.create_task(_read_end(process.stderr))
                await process.wait()
        except TimeoutError:
            raise ProgramStopped(f"took longer than {seconds:g} s") from None
    assert process.returncode is not None
    return ProgramResult(
        process.returncode, answer.result(), said.result(), (time.monotonic() - began) * 1000
    )


@contextlib.asynccontextmanager
async def _started(
    argv: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder, env=environment, start_new_session=True
    )
    try:
        yield process
    finally:
        _kill(process)
        # Shielded: a cancelled step still waits until its process is gone.
        await asyncio.shield(process.wait())


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)


async def _feed(pipe: asyncio.StreamWriter, given: bytes) -> None:
    # A program need not read what it is given.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.write(given)
        await pipe.drain()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        pipe.close()


async def _read(pipe: asyncio.StreamReader, limit: int) -> bytes:
    found = bytearray()
    while piece := await pipe.read(_PIECE):
        found += piece
        if len(found) > limit:
            raise ProgramStopped(f"wrote more than {limit} bytes")
    return bytes(found)


async def _read_end(pipe: asyncio.StreamReader) -> str:
    found = b""
    while piece := await pipe.read(_PIECE):
        found = (found + piece)[-_SAID_BYTES:]
    return found.decode(errors="replace")


async def call_program(
    tool: ToolDefinition, values: Mapping[str, Any], files: Path, folder: Path, seconds: float
) -> Result:
    """What the program printed, as JSON if the tool has an output schema; else how it went, in full.

    `files` holds the scripts of the tool. Raises `StepFailed`.
    """
    argv = _command_line(tool, values, files)
    finished = await run(tool, argv, _stdin(values), folder, seconds)
    if "output_schema" not in tool.extra:
        return Result(_process_result(argv, finished), metrics_of(finished))
    try:
        value = python_tool.last_document(finished.stdout.decode(errors="replace"))
    except ValueError as error:
        raise StepFailed(
            f"tool {tool.tool_id} has an output schema, but {error}", metrics=metrics_of(finished)
        ) from None
    return Result(value, metrics_of(finished))


def _command_line(tool: ToolDefinition, values: Mapping[str, Any], files: Path) -> list[str]:
    body = tool.extra["executable"]
    words = {"prompt": json.dumps(dict(values)), **values, "tool_dir": str(files)}
    for name, value in values.items():
        # The program starts in a folder of its own; a file that is named is meant to be found from here.
        if name.endswith(_FILE_INPUTS) and isinstance(value, str) and Path(value).exists():
            words[name] = str(Path(value).absolute())
    arguments = [fill(each, words) for each in body.get("args", ())]
    command = fill(body["command"], words)
    if command in PYTHONS:
        return [sys.executable, *arguments]
    program = shutil.which(command if os.sep not in command else str(files / command))
    if program is None:
        install = body.get("install_command")
        raise StepFailed(
            f"tool {tool.tool_id}: the command {command!r} is not there",
            final=True,
            metrics={"exit_code": NOT_FOUND},
            hint=f"install it: {install}" if install else f"install {command}",
        )
    return [program, *arguments]


def _stdin(values: Mapping[str, Any]) -> bytes:
    if values.keys() == {"prompt"} and isinstance(values["prompt"], str):
        return values["prompt"].encode(errors="replace")
    return json.dumps(dict(values)).encode()


def _process_result(argv: list[str], finished: ProgramResult) -> dict[str, Any]:
    return {
        "success": True,
        "exit_code": finished.exit_code,
        "stdout": finished.stdout.decode(errors="replace"),
        "stderr": finished.said,
        "command": shlex.join(argv),
    }
