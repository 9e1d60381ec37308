"""Executable tools: a program with its arguments, without a shell, in the sandbox.

It starts in a private, empty directory and sees the folder of the tool. Its inputs are in the arguments that name them
and on stdin: as JSON, or as they are if a single `prompt` is all there is.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import StepFailed
from ratchet.flowkit.templates import fill
from ratchet.sandbox import Finished, Policy, run
from ratchet.sandbox.plan import is_shown
from ratchet.tools.bodies import ExecutableBody
from ratchet.tools.call import Called, Occasion, ToolFailed, ToolUse
from ratchet.tools.definition import Tool
from ratchet.tools.environments import Environment, environment_for
from ratchet.tools.inside.python_tool import last_document
from ratchet.tools.sandboxed import (
    NOT_FOUND,
    SCRATCH,
    as_json,
    bounds_for,
    environment,
    failure_of,
    listener_to,
    said_by,
    startable,
    use_of,
)

PYTHONS = ("python", "python3")
"""Commands that mean the Python that runs Ratchet, or the one with the tool's packages; never one of the PATH."""
_FILE_INPUTS = ("_file", "_path")


async def call_program(
    tool: Tool, body: ExecutableBody, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> Called:
    """What the program printed, as JSON if the tool has an output schema; else how it went, in full.

    Raises `ToolFailed`, with exit code 127 for a program that is not there and 124 for one that took too long. A
    program that ends with anything but 0 has failed; what it printed is in the failure's `result`.
    """
    own = None
    if tool.requirements:
        runtime = occasion.runtime
        own = await environment_for(tool.requirements, runtime.home, runtime.settings.tools)
    _check_files(tool, body)
    argv, shown = _command_line(tool, body, values, occasion, own)
    bounds = bounds_for(tool, occasion, seconds)
    policy = Policy(
        network=tool.network,
        readable=tuple(dict.fromkeys(shown)),
        environment=environment(*([own.programs] if own else [])),
    )
    with startable(tool):
        finished = await run(
            argv,
            cwd=SCRATCH,
            stdin=_stdin(values),
            bounds=bounds,
            policy=policy,
            overhear=listener_to(occasion),
        )
    result = _result(argv, finished)
    if not finished.ok:
        failed = failure_of(tool, finished, bounds)
        failed.result = result
        raise failed
    value = result if tool.output_schema is None else _answer(tool, finished)
    return Called(value, use_of(finished), said_by(finished))


def _command_line(
    tool: Tool, body: ExecutableBody, values: Mapping[str, Any], occasion: Occasion, own: Environment | None
) -> tuple[list[str], list[Path]]:
    """The argv, and what must be seen for it to run."""
    shown = [own.directory] if own else []
    words: dict[str, Any] = {"prompt": as_json(values).decode(), **values}
    if tool.folder is not None:
        words["tool_dir"] = str(tool.folder.resolve())
        shown.append(tool.folder.resolve())
    for name, value in values.items():
        if name.endswith(_FILE_INPUTS) and (file := _file_of(value, occasion.folder)) is not None:
            words[name] = str(file)
            shown.append(file)
    try:
        arguments = [fill(each, words) for each in body.args]
        command = fill(body.command, words)
    except StepFailed as error:
        raise ToolFailed(f"tool {tool.id}: {error}", hint=error.hint, final=True) from None
    program = _program(command, tool, own)
    if program is None:
        raise _absent(tool, body, command)
    if not is_shown(program.parent) and not any(map(program.is_relative_to, shown)):
        shown.append(program)
    return [str(program), *arguments], shown


def _program(command: str, tool: Tool, own: Environment | None) -> Path | None:
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


def _absent(tool: Tool, body: ExecutableBody, command: str) -> ToolFailed:
    hint = f"install it: {body.install_command}" if body.install_command else f"install {command}"
    said = f"{command}: not found; {hint}"
    return ToolFailed(
        f"tool {tool.id}: the command {command!r} is not there",
        hint=hint,
        use=ToolUse(exit_code=NOT_FOUND),
        said=said,
        final=True,
        result=_told(False, NOT_FOUND, "", said, command),
    )


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
            raise ToolFailed(
                f"tool {tool.id}: its file {name} cannot be read: {error.strerror}",
                hint="put it back, or add the tool again",
                final=True,
            ) from None
        if found != wanted:
            raise ToolFailed(
                f"tool {tool.id}: its file {name} is not the one that this version was made of",
                hint="add the tool again, which makes a new version",
                final=True,
            )


def _stdin(values: Mapping[str, Any]) -> bytes:
    if values.keys() == {"prompt"} and isinstance(values["prompt"], str):
        return values["prompt"].encode(errors="replace")
    return as_json(values)


def _result(argv: list[str], finished: Finished) -> dict[str, Any]:
    stdout, stderr = (each.decode(errors="replace") for each in (finished.stdout, finished.stderr))
    return _told(finished.ok, use_of(finished).exit_code, stdout, stderr, shlex.join(argv))


def _told(success: bool, code: int | None, stdout: str, stderr: str, command: str) -> dict[str, Any]:
    return {
        "success": success,
        "exit_code": code,
        "stdout": stdout,
        "stderr": stderr,
        "command": command,
    }


def _answer(tool: Tool, finished: Finished) -> Any:
    try:
        return last_document(finished.stdout.decode(errors="replace"))
    except ValueError as error:
        raise ToolFailed(
            f"tool {tool.id} has an output schema, but {error}",
            use=use_of(finished),
            said=said_by(finished),
        ) from None
