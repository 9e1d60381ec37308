"""From a description and a request to a call of the agent's program."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ratchet.config.command_settings import Command
from ratchet.engines.command.template import filled, mentions
from ratchet.engines.failure import Failure
from ratchet.engines.fault import Fault
from ratchet.engines.session import Request
from ratchet.engines.supervision import Invocation
from ratchet.kernel import Misuse

# What the kernel takes as one argument.
_LONGEST_WORD = 128 * 1024 - 1
_ANSWER_FORM = "Answer with nothing but JSON that fits this JSON Schema:"


def find_program(description: Command, name: str, environment: Mapping[str, str]) -> Path:
    """The program that the description begins with. Raises `Fault` if it is not there."""
    program = description.argv[0]
    # Not by way of a Path, which would make ./agent the name of a program on the PATH.
    found = shutil.which(os.path.expanduser(program), path=environment.get("PATH", os.defpath))  # noqa: PTH111
    if found is None:
        install = description.install or f"install it, or name it by its path in engines.command.{name}.argv"
        raise Fault(Failure.MISSING, f"{program} is not on the PATH", hint=install)
    return Path(found).absolute()


def prepare(
    description: Command,
    program: Path,
    request: Request,
    home: Path,
    environment: Mapping[str, str],
    model: str | None,
) -> Invocation:
    """Write what the session needs into `home` and say how the program is called. Raises `Misuse`."""
    scratch = home / "tmp"
    scratch.mkdir()
    workspace = request.workspace.resolve() if request.workspace else scratch
    values = _values(description, request, home, workspace, model)
    argv = (str(program), *filled(description.argv[1:], values))
    for word in argv:
        if len(word.encode(errors="replace")) > _LONGEST_WORD:
            raise Misuse(
                f"the prompt makes an argument of more than {_LONGEST_WORD} bytes, which no program can be given",
                hint="describe the agent with {prompt_file} in its argv, or give it the prompt on stdin",
            )
    places = (workspace,) if request.workspace else ()
    edits, named = description.edits_files, mentions(description.argv, "prompt", "prompt_file")
    return Invocation(
        argv,
        workspace,
        _variables(description, values, home, scratch, environment) | dict(request.environment),
        stdin=b"" if named else (values["prompt"] or "").encode(errors="replace"),
        readable=request.readable if edits else (*request.readable, *places),
        writable=(home, *places) if edits else (home,),
        places=request.places,
        network=description.network,
    )


def answer_file(description: Command, request: Request, home: Path) -> Path | None:
    """The file that the answer is in, if it is in one; a relative path starts at the workspace."""
    kind, _, name = description.answer.partition(":")
    if kind != "file":
        return None
    workspace = request.workspace.resolve() if request.workspace else home / "tmp"
    words = filled([name], {"home": str(home), "workspace": str(workspace)})
    return workspace / words[0] if words else None


def _values(
    description: Command, request: Request, home: Path, workspace: Path, model: str | None
) -> dict[str, str | None]:
    """What each placeholder stands for. A text that has a file of its own is in the file as well."""
    values: dict[str, str | None] = {
        "prompt": _prompt(description, request),
        "system": request.system,
        "model": model,
        "workspace": str(workspace),
        "home": str(home),
    }
    schema = None if request.output_schema is None else json.dumps(request.output_schema)
    for name, text in (("prompt", values["prompt"]), ("system", request.system), ("schema", schema)):
        values[f"{name}_file"] = None
        if text is not None:
            file = home / f"{name}.{'json' if name == 'schema' else 'md'}"
            file.write_text(text, errors="replace")
            values[f"{name}_file"] = str(file)
    return values


def _prompt(description: Command, request: Request) -> str:
    """The prompt, with whatever the description has no place of its own for."""
    parts = [request.prompt]
    if request.system and not mentions(description.argv, "system", "system_file"):
        parts.insert(0, request.system)
    if request.output_schema is not None and not mentions(description.argv, "schema_file"):
        parts.append(f"{_ANSWER_FORM}\n{json.dumps(request.output_schema)}")
    return "\n\n".join(parts)


def _variables(
    description: Command,
    values: Mapping[str, str | None],
    home: Path,
    scratch: Path,
    environment: Mapping[str, str],
) -> dict[str, str]:
    own = (each.partition("=") for each in filled(description.variables, values))
    return {
        "PATH": environment.get("PATH", os.defpath),
        "LANG": environment.get("LANG", "C.UTF-8"),
        "HOME": str(home),
        "TMPDIR": str(scratch),
        "TERM": "dumb",
        "NO_COLOR": "1",
        **{name: environment[name] for name in description.environment if name in environment},
        **{name: value for name, _, value in own},
    }
