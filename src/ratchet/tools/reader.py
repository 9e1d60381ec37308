"""Making a tool of a definition: the keys that every tool has."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ratchet.kernel import PLACEMENT_KINDS, PlacementChoice
from ratchet.kernel.semver import Bump, is_semver
from ratchet.tools.definition import (
    CALLABLE,
    Body,
    Constraints,
    Example,
    ExecutableBody,
    FunctionBody,
    LlmBody,
    McpBody,
    OpenApiBody,
    PythonBody,
    Tool,
    ToolType,
    WorkflowBody,
    usual_cache,
)
from ratchet.tools.definition_file import (
    DefinitionFields,
    ToolError,
    UnreadableDefinition,
    loaded_json,
    loaded_yaml,
    read_bytes,
    read_text,
    to_json_schema,
)

TOOL_DIR = "{tool_dir}"
_MOST_SCRIPT_BYTES = 16 * 1024 * 1024
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,127}", re.ASCII)
_COST = ("free", "low", "medium", "high", "very-high")
_SPEED = ("very-fast", "fast", "medium", "slow", "very-slow")
_QUALITY = ("poor", "good", "very-good", "excellent")
_OTHER_WORDS = {"instant": "very-fast", "very-low": "low", "average": "good"}
_TYPE_WORDS = {"api": "openapi", "script": "python"}
_OUTSIDE = frozenset({ToolType.OPENAPI, ToolType.MCP})
_MOST_EXAMPLES = 200
_MOST_SECONDS = 7 * 24 * 3600


def _llm(fields: DefinitionFields) -> LlmBody:
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


def _python(fields: DefinitionFields) -> PythonBody | None:
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


def _executable(fields: DefinitionFields) -> ExecutableBody | None:
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


def _openapi(fields: DefinitionFields) -> OpenApiBody | None:
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


def _mcp(fields: DefinitionFields) -> McpBody | None:
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


def _workflow(fields: DefinitionFields) -> WorkflowBody | None:
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


def _function(fields: DefinitionFields) -> FunctionBody | None:
    inner = fields.inside("function")
    entry = inner.optional_text("entry")
    if entry is None:
        inner.wrong("entry", "it is missing; name a function that is announced as `ratchet.tools`")
        return None
    return FunctionBody(entry, extra=inner.rest)


BODIES: dict[ToolType, Callable[[DefinitionFields], Body | None]] = {
    ToolType.LLM: _llm,
    ToolType.PYTHON: _python,
    ToolType.EXECUTABLE: _executable,
    ToolType.OPENAPI: _openapi,
    ToolType.MCP: _mcp,
    ToolType.WORKFLOW: _workflow,
    ToolType.FUNCTION: _function,
}


def digest_of(path: Path, within: Path) -> str:
    """The SHA-256 of a script. Raises `UnreadableDefinition`."""
    return hashlib.sha256(read_bytes(path, within, most=_MOST_SCRIPT_BYTES)).hexdigest()


def _script(arg: str) -> str | None:
    """The path of the file in the tool's folder that an argument names."""
    rest = arg.removeprefix(TOOL_DIR + "/")
    return rest if rest != arg and "{" not in rest else None


def _digest(inner: DefinitionFields, name: str, known: Mapping[str, Any]) -> str | None:
    """As it was written down, if it was: then the file may be elsewhere, or have changed since."""
    if isinstance(known.get(name), str):
        return str(known[name])
    try:
        inner.files.append(name)
        return digest_of(inside(name, inner.folder), _folder(inner.folder))
    except UnreadableDefinition as error:
        inner.wrong("args", str(error))
        return None


def _beside(arg: str, inner: DefinitionFields) -> str:
    """Old files name a script from the root of their project; it is meant to lie beside the definition."""
    path, folder = PurePosixPath(arg), inner.folder
    if folder is None or path.is_absolute() or len(path.parts) < 2 or path.parts[-2] != folder.name:
        return arg
    if ".." in path.parts or "{" in arg or not (folder / path.name).is_file():
        return arg
    inner.warn("args", f"{arg} is taken to be {TOOL_DIR}/{path.name}")
    return f"{TOOL_DIR}/{path.name}"


def _content(inner: DefinitionFields, key: str, name: str) -> str | None:
    try:
        inner.files.append(name.removeprefix(TOOL_DIR + "/"))
        return read_text(inside(name, inner.folder), _folder(inner.folder))
    except UnreadableDefinition as error:
        inner.wrong(key, str(error))
        return None


def _document(inner: DefinitionFields, key: str, name: str) -> Any:
    """What a JSON or YAML file says."""
    text = _content(inner, key, name)
    try:
        return None if text is None else loaded_yaml(text)
    except UnreadableDefinition as error:
        inner.wrong(key, f"{name}: {error}")
        return None


def inside(name: str, folder: Path | None) -> Path:
    """The file in a tool's folder that a definition names. Raises `UnreadableDefinition` for one that is elsewhere."""
    path = PurePosixPath(name.removeprefix(TOOL_DIR + "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise UnreadableDefinition(f"{name[:200]!r} is not a path inside the tool's folder")
    return _folder(folder) / path


def _folder(folder: Path | None) -> Path:
    if folder is None:
        raise UnreadableDefinition("the definition names a file, but it comes without a folder")
    return folder


def read(
    data: Mapping[str, Any], *, folder: Path | None, id: str | None, file: str | None, stored: bool
) -> Tool:
    fields = DefinitionFields(data, folder=folder)
    tool_id = _id(fields, id)
    kind = _type(fields)
    body = _body(fields, kind)
    network = fields.flag("network", kind in _OUTSIDE)
    common: dict[str, Any] = {
        "name": fields.text("name", tool_id),
        "description": fields.text("description"),
        "tags": tuple(dict.fromkeys(fields.texts("tags"))),
        "cost_tier": _tier(fields, "cost_tier", _COST),
        "speed_tier": _tier(fields, "speed_tier", _SPEED),
        "quality_tier": _tier(fields, "quality_tier", _QUALITY),
        "max_output_length": fields.optional_text("max_output_length"),
        "priority": float(fields.number("priority") or 0),
        "version": _version(fields),
        "change_type": _change_type(fields),
        "breaking_changes": fields.texts("breaking_changes"),
        "track_usage": fields.flag("track_usage", True),
        "input_schema": _schema(fields, "input_schema", "inputs", stored=stored),
        "output_schema": _schema(fields, "output_schema", "outputs", stored=stored),
        "examples": _examples(fields),
        "constraints": _constraints(fields),
        "placement": _placement(fields, kind),
        "network": network,
        "cache": fields.flag("cache", usual_cache(network, body if isinstance(body, LlmBody) else None)),
        "timeout": _timeout(fields, data),
        "fallback_tool": fields.optional_text("fallback_tool") or _old_fallback(fields.rest),
        "requirements": fields.texts("requirements"),
        "secrets": _secrets(fields, kind),
    }
    if common["secrets"] and common["placement"].kind not in ("", "local"):
        fields.wrong("placement", "a tool with secrets stays with its worker: nodes are given no keys")
    if fields.problems:
        raise ToolError(fields.problems, file=file)
    for key in fields.rest:
        fields.warn(key, "not a key that is used")
    bodies: dict[str, Body] = {} if body is None else {kind.value: body}
    return Tool(
        id=tool_id,
        type=kind,
        **common,
        **bodies,  # type: ignore[arg-type]
        extra=fields.rest,
        folder=folder,
        files=tuple(fields.files),
        warnings=tuple(fields.warnings),
    )


def _secrets(fields: DefinitionFields, kind: ToolType) -> tuple[str, ...]:
    names = fields.texts("secrets")
    if names and kind not in (ToolType.PYTHON, ToolType.EXECUTABLE):
        fields.wrong("secrets", "only a python tool or a program is given variables by name")
    for name in names:
        if _VARIABLE.fullmatch(name) is None:
            fields.wrong(
                "secrets", f"{name[:80]!r} is no name of a variable; it never holds the secret itself"
            )
    return names


def _id(fields: DefinitionFields, given: str | None) -> str:
    found = fields.optional_text("id") or given or ""
    if _ID.fullmatch(found) is None:
        fields.wrong("id", f"{found[:80]!r} is not an id; use letters, digits, `_`, `-`, `.` and `@`")
    return found


def _type(fields: DefinitionFields) -> ToolType:
    word = fields.text("type").strip().lower()
    word = _TYPE_WORDS.get(word, word)
    if word.startswith("stream_"):
        fields.rest["stream_type"] = word
        return ToolType.STREAM
    if word not in ToolType.__members__.values():
        said = f"{word[:40]!r} is not a type" if word else "it is missing"
        fields.wrong("type", f"{said}; use one of {', '.join(sorted(CALLABLE))}")
        return ToolType.CUSTOM
    return ToolType(word)


def _body(fields: DefinitionFields, kind: ToolType) -> Body | None:
    if kind not in CALLABLE:
        return None
    if kind is ToolType.FUNCTION and "function" not in fields.rest:
        return None
    return BODIES[kind](fields)


def _tier(fields: DefinitionFields, key: str, words: tuple[str, ...]) -> str | None:
    """A word that is not among `words` says nothing about a tool, but does not make it unusable."""
    found = fields.optional_text(key)
    if found is None:
        return None
    word = found.strip().lower().replace("_", "-").replace(" ", "-")
    word = _OTHER_WORDS.get(word, word)
    if word in words:
        return word
    fields.warn(key, f"{found[:40]!r} is none of {', '.join(words)}")
    return None


def _version(fields: DefinitionFields) -> str | None:
    """Three numbers; what is missing of them is 0, as in `1.2` or the number 2."""
    found = fields.optional_text("version")
    if found is None:
        return None
    parts = found.strip().removeprefix("v").split(".")
    version = ".".join([*parts, "0", "0"][:3] if len(parts) < 3 else parts)
    if is_semver(version):
        return version
    fields.warn("version", f"{found[:40]!r} is not three numbers, so it is left out")
    return None


def _change_type(fields: DefinitionFields) -> Bump | None:
    found = fields.optional_text("change_type")
    try:
        return None if found is None else Bump(found.strip().lower())
    except ValueError:
        fields.wrong("change_type", f"{found!r} is none of patch, minor and major")
        return None


def _schema(fields: DefinitionFields, key: str, old_key: str, *, stored: bool) -> dict[str, Any] | None:
    if stored:
        return fields.table(key) or None
    found = fields.take(key)
    if found is None and isinstance(fields.rest.get(old_key), list):
        key, found = old_key, fields.take(old_key)
    try:
        return to_json_schema(found)
    except UnreadableDefinition as error:
        fields.wrong(key, str(error))
        return None


def _examples(fields: DefinitionFields) -> tuple[Example, ...]:
    """Those that have an input. Others show a person how to use the tool; they are kept under `notes_on_use`."""
    found = fields.take("examples")
    listed = found if isinstance(found, list) else [] if found is None else [found]
    if len(listed) > _MOST_EXAMPLES:
        fields.wrong("examples", f"{len(listed)} are too many; a tool has at most {_MOST_EXAMPLES}")
    usable = [example for example in map(_example, listed) if example is not None]
    unusable = [each for each in listed if _example(each) is None]
    if unusable:
        fields.rest["notes_on_use"] = unusable
        fields.warn("examples", f"{len(unusable)} have no input, so they cannot be run")
    return tuple(usable)


def _example(found: Any) -> Example | None:
    if not isinstance(found, dict):
        return None
    given = found.get("input", found.get("inputs"))
    given = loaded_json(given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        return None
    outputs = [found[key] for key in ("output", "outputs", "expected") if key in found]
    described = found.get("description")
    return Example(
        input=given,
        output=_answer(outputs[0]) if outputs else None,
        checked=bool(outputs),
        description=described if isinstance(described, str) else "",
    )


def _answer(found: Any) -> Any:
    """What a text that is a JSON object or list means: old files write answers as they were printed."""
    meant = loaded_json(found) if isinstance(found, str) else found
    return meant if isinstance(meant, dict | list) else found


def _constraints(fields: DefinitionFields) -> Constraints:
    inner = fields.inside("constraints")
    return Constraints(
        max_calls_per_hour=inner.whole("max_calls_per_hour", above=0, most=1_000_000),
        max_memory_mb=inner.whole("max_memory_mb", above=0, most=1_000_000),
        max_output_bytes=inner.whole("max_output_bytes", above=0, most=1_000_000_000),
        max_db_size_mb=inner.whole("max_db_size_mb", above=0, most=1_000_000),
        extra=inner.rest,
    )


def _placement(fields: DefinitionFields, kind: ToolType) -> PlacementChoice:
    if "placement" in fields.rest and kind not in (ToolType.PYTHON, ToolType.EXECUTABLE):
        fields.wrong("placement", "only a python tool or a program can be placed")
    inner = fields.inside("placement")
    labels = inner.table("labels")
    choice = PlacementChoice(
        kind=inner.text("kind"),
        cpus=inner.number("cpus", above=-1e-9, most=10_000),
        memory_mb=inner.whole("memory_mb", above=0, most=100_000_000),
        gpus=inner.whole("gpus", above=-1, most=1000),
        gpu_type=inner.text("gpu_type"),
        labels={name: str(value) for name, value in labels.items()},
        wall_seconds=inner.number("wall_seconds", above=0, most=_MOST_SECONDS),
    )
    if choice.kind not in ("", *PLACEMENT_KINDS):
        inner.wrong("kind", f"{choice.kind[:40]!r} is none of {', '.join(PLACEMENT_KINDS)}")
    for key in inner.rest:
        inner.wrong(key, "not a key that is used")
    return choice


def _timeout(fields: DefinitionFields, data: Mapping[str, Any]) -> float | None:
    """Of the tool, or as old files have it, of its program."""
    found = fields.number("timeout", above=0, most=_MOST_SECONDS)
    program = data.get("executable")
    if found is None and isinstance(program, dict) and "timeout" in program:
        found = DefinitionFields(program).number("timeout", above=0, most=_MOST_SECONDS)
    return None if found is None else float(found)


def _old_fallback(rest: Mapping[str, Any]) -> str | None:
    """The first tool of `fallback: {tools: […]}`."""
    found = rest.get("fallback")
    listed = found.get("tools") if isinstance(found, dict) else None
    return listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], str) else None
