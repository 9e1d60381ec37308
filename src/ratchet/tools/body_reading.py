"""Reading what a tool does when it is called. What is in a file of its folder becomes part of the definition."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ratchet.tools.bodies import (
    Body,
    ExecutableBody,
    FunctionBody,
    LlmBody,
    McpBody,
    OpenApiBody,
    PythonBody,
    WorkflowBody,
)
from ratchet.tools.definition import ToolType
from ratchet.tools.fields import Fields, Unreadable
from ratchet.tools.yaml_file import loaded_yaml, read_bytes, read_text

TOOL_DIR = "{tool_dir}"
_MOST_SCRIPT_BYTES = 16 * 1024 * 1024


def _llm(fields: Fields) -> LlmBody:
    inner = fields.inside("llm")
    temperature = inner.number("temperature", above=-1e-9, most=10)
    return LlmBody(
        model=inner.optional_text("model"),
        role=inner.optional_text("role"),
        tier=inner.optional_text("tier"),
        system_prompt=inner.optional_text("system_prompt"),
        prompt_template=inner.optional_text("prompt_template"),
        temperature=None if temperature is None else float(temperature),
        max_tokens=inner.whole("max_tokens", above=0),
        extra=inner.rest,
    )


def _python(fields: Fields) -> PythonBody | None:
    if isinstance(fields.rest.get("python"), str):
        fields.rest["python"] = {"source": fields.rest["python"]}
    inner = fields.inside("python")
    source, file = inner.optional_text("source"), inner.optional_text("file")
    if source is None and file is not None:
        source = _content(inner, "file", file)
    elif source is None:
        inner.wrong("source", "it is missing; give the code, or a `file` that holds it")
    entry = inner.text("entry", "run")
    if not entry.isidentifier():
        inner.wrong("entry", f"{entry[:60]!r} is not the name of a function")
    return None if source is None else PythonBody(source=source, entry=entry, extra=inner.rest)


def _executable(fields: Fields) -> ExecutableBody | None:
    inner = fields.inside("executable")
    command, alone = inner.text("command").strip(), "args" not in inner.rest
    given = inner.texts("args")
    install, known = inner.optional_text("install_command"), inner.table("files")
    inner.take("timeout")  # the tool's own
    if not command:
        inner.wrong("command", "it is missing; say which program to run")
        return None
    try:
        words = shlex.split(command) if alone else [command]
    except ValueError as error:
        inner.wrong("command", f"{command[:80]!r} cannot be split into words: {error}")
        return None
    args = [_beside(arg, inner) for arg in (*words[1:], *given)]
    files = {
        name: digest
        for arg in (words[0], *args)
        if (name := _script(arg)) is not None
        if (digest := _digest(inner, name, known)) is not None
    }
    return ExecutableBody(words[0], tuple(args), install, files, extra=inner.rest)


def _openapi(fields: Fields) -> OpenApiBody | None:
    inner = fields.inside("openapi")
    path, spec = inner.optional_text("spec_path"), inner.take("spec_dict")
    spec = inner.take("spec") if spec is None else spec
    if spec is None and path is not None:
        spec = _document(inner, "spec_path", path)
    if spec is not None and not isinstance(spec, dict):
        inner.wrong("spec", "it is not a table")
    body = OpenApiBody(
        spec=spec if isinstance(spec, dict) else None,
        spec_url=inner.optional_text("spec_url"),
        base_url=inner.optional_text("base_url"),
        operation=inner.optional_text("operation"),
        auth=inner.table("auth"),
        code_template=fields.optional_text("code_template"),
        extra=inner.rest,
    )
    if body.spec is None and body.spec_url is None and body.base_url is None and path is None:
        inner.wrong("base_url", "it is missing; give a spec_path, a spec_url or a base_url")
    return body


def _mcp(fields: Fields) -> McpBody | None:
    inner = fields.inside("mcp")
    server = inner.optional_text("server") or inner.optional_text("server_name")
    if server is None:
        inner.wrong("server", "it is missing; name the server")
        return None
    inner.take("auto_start")  # a server is started when one of its tools is called
    env = inner.table("env")
    if not all(isinstance(value, str | int | float) for value in env.values()):
        inner.wrong("env", "its values must be texts")
    listed = fields.take("capabilities")
    return McpBody(
        server=server,
        tool=inner.optional_text("tool"),
        command=inner.optional_text("command"),
        args=inner.texts("args"),
        url=inner.optional_text("url"),
        env={name: str(value) for name, value in env.items()},
        enabled=inner.flag("enabled", True),
        capabilities=tuple(listed) if isinstance(listed, list) else (),
        extra=inner.rest,
    )


def _workflow(fields: Fields) -> WorkflowBody | None:
    inner = fields.inside("workflow")
    path, spec = inner.optional_text("path"), inner.take("spec")
    if spec is None and "steps" in inner.rest:
        spec, inner.rest = inner.rest, {}
    if spec is None and path is not None:
        spec = _document(inner, "path", path)
        if spec is None:
            return None
    if not isinstance(spec, dict):
        inner.wrong("spec", "it is missing; give the workflow, or the `path` of its file")
        return None
    return WorkflowBody(spec, extra=inner.rest)


def _function(fields: Fields) -> FunctionBody | None:
    inner = fields.inside("function")
    entry = inner.optional_text("entry")
    if entry is None:
        inner.wrong("entry", "it is missing; name a function that is announced as `ratchet.tools`")
        return None
    return FunctionBody(entry, extra=inner.rest)


BODIES: dict[ToolType, Callable[[Fields], Body | None]] = {
    ToolType.LLM: _llm,
    ToolType.PYTHON: _python,
    ToolType.EXECUTABLE: _executable,
    ToolType.OPENAPI: _openapi,
    ToolType.MCP: _mcp,
    ToolType.WORKFLOW: _workflow,
    ToolType.FUNCTION: _function,
}


def digest_of(path: Path, within: Path) -> str:
    """The SHA-256 of a script. Raises `Unreadable`."""
    return hashlib.sha256(read_bytes(path, within, most=_MOST_SCRIPT_BYTES)).hexdigest()


def _script(arg: str) -> str | None:
    """The path of the file in the tool's folder that an argument names."""
    rest = arg.removeprefix(TOOL_DIR + "/")
    return rest if rest != arg and "{" not in rest else None


def _digest(inner: Fields, name: str, known: Mapping[str, Any]) -> str | None:
    """As it was written down, if it was: then the file may be elsewhere, or have changed since."""
    if isinstance(known.get(name), str):
        return str(known[name])
    try:
        inner.files.append(name)
        return digest_of(inside(name, inner.folder), _folder(inner.folder))
    except Unreadable as error:
        inner.wrong("args", str(error))
        return None


def _beside(arg: str, inner: Fields) -> str:
    """Old files name a script from the root of their project; it is meant to lie beside the definition."""
    path, folder = PurePosixPath(arg), inner.folder
    if folder is None or path.is_absolute() or len(path.parts) < 2 or path.parts[-2] != folder.name:
        return arg
    if ".." in path.parts or "{" in arg or not (folder / path.name).is_file():
        return arg
    inner.warn("args", f"{arg} is taken to be {TOOL_DIR}/{path.name}")
    return f"{TOOL_DIR}/{path.name}"


def _content(inner: Fields, key: str, name: str) -> str | None:
    try:
        inner.files.append(name.removeprefix(TOOL_DIR + "/"))
        return read_text(inside(name, inner.folder), _folder(inner.folder))
    except Unreadable as error:
        inner.wrong(key, str(error))
        return None


def _document(inner: Fields, key: str, name: str) -> Any:
    """What a JSON or YAML file says."""
    text = _content(inner, key, name)
    try:
        return None if text is None else loaded_yaml(text)
    except Unreadable as error:
        inner.wrong(key, f"{name}: {error}")
        return None


def inside(name: str, folder: Path | None) -> Path:
    """The file in a tool's folder that a definition names. Raises `Unreadable` for one that is elsewhere."""
    path = PurePosixPath(name.removeprefix(TOOL_DIR + "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Unreadable(f"{name[:200]!r} is not a path inside the tool's folder")
    return _folder(folder) / path


def _folder(folder: Path | None) -> Path:
    if folder is None:
        raise Unreadable("the definition names a file, but it comes without a folder")
    return folder
