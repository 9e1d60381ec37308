"""The engine behind a description: prepares the call of the agent's program, and starts it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ratchet.config.engine_settings import CommandSettings, placeholders_in
from ratchet.engines.command.catalog import READY
from ratchet.engines.command.session import CommandSession
from ratchet.engines.endpoint import HiddenKeys
from ratchet.engines.engine import Capabilities, Engine, Failure, Fault, Readiness, Request, Session
from ratchet.engines.program import Invocation, check_fit, could_not_write, supervise, try_out
from ratchet.engines.providers import price_of
from ratchet.engines.registry import EngineContext
from ratchet.engines.session_home import ForeignFile, private_places, session_home
from ratchet.kernel import Misuse, decoded


def filled(words: Sequence[str], values: Mapping[str, str | None]) -> list[str]:
    """The words with their placeholders filled in, without those that have a placeholder with no value."""
    return [
        word.format_map(values)
        for word in words
        if all(values.get(name) is not None for name in placeholders_in(word))
    ]


def mentions(words: Sequence[str], *names: str) -> bool:
    return any(name in names for word in words for name in placeholders_in(word))


# What the kernel takes as one argument.
_LONGEST_WORD = 128 * 1024 - 1
_SCRIPTS = frozenset({".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".pl"})
_ANSWER_FORM = "Answer with nothing but JSON that fits this JSON Schema:"


def find_program(description: CommandSettings, name: str, environment: Mapping[str, str]) -> Path:
    """The program that the description begins with. Raises `Fault` if it is not there."""
    program = description.argv[0]
    # Not by way of a Path, which would make ./agent the name of a program on the PATH.
    found = shutil.which(os.path.expanduser(program), path=environment.get("PATH", os.defpath))  # noqa: PTH111
    if found is None:
        install = description.install or f"install it, or name it by its path in engines.command.{name}.argv"
        raise Fault(Failure.MISSING, f"{program} is not on the PATH", hint=install)
    for path in _named_files(description):
        if path.suffix in _SCRIPTS and not path.exists():
            hint = f"put it there, or name another in engines.command.{name}.argv"
            raise Fault(Failure.MISSING, f"{path} is not there", hint=hint)
    return Path(found).absolute()


def _named_files(description: CommandSettings) -> list[Path]:
    """What the description gives the program by its whole path, such as the script of an interpreter."""
    return [path for path in map(Path, description.argv[1:]) if path.is_absolute()]


def prepare(
    description: CommandSettings,
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


def answer_file(description: CommandSettings, request: Request, home: Path) -> ForeignFile | None:
    """The file that the answer is in, if it is in one; a relative path starts at the workspace."""
    kind, _, name = description.answer.partition(":")
    if kind != "file":
        return None
    workspace = request.workspace.resolve() if request.workspace else home / "tmp"
    words = filled([name], {"home": str(home), "workspace": str(workspace)})
    if not words:
        return None
    file = workspace / words[0]
    top = next((top for top in (home, workspace) if file.is_relative_to(top)), file.parent)
    return ForeignFile(top, file)


def _values(
    description: CommandSettings, request: Request, home: Path, workspace: Path, model: str | None
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


def _prompt(description: CommandSettings, request: Request) -> str:
    """The prompt, with whatever the description has no place of its own for."""
    parts = [request.prompt]
    if request.system and not mentions(description.argv, "system", "system_file"):
        parts.insert(0, request.system)
    if request.output_schema is not None and not mentions(description.argv, "schema_file"):
        parts.append(f"{_ANSWER_FORM}\n{json.dumps(request.output_schema)}")
    return "\n\n".join(parts)


def _variables(
    description: CommandSettings,
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


_VERSION_SECONDS = 20.0
_SECRET = re.compile(r"KEY$|TOKEN$|PASSWORD$|SECRET$")


def open_command(surroundings: EngineContext, name: str) -> Engine:
    """The agent that is described under `name` in the settings, or ready; `name:model` gives it a model."""
    plain, _, model = name.partition(":")
    description = surroundings.settings.engines.command.get(plain) or READY[plain]
    return CommandEngine(
        surroundings, plain, description.model_copy(update={"model": model} if model else None)
    )


class CommandEngine:
    def __init__(self, surroundings: EngineContext, name: str, description: CommandSettings) -> None:
        self._name = name
        self._description = description
        self._prices = surroundings.settings.llm.prices
        self._home = surroundings.home
        self._readable = surroundings.readable
        self._environment = surroundings.environment
        self._secrets = HiddenKeys(
            self._environment.get(each, "")
            for each in description.environment
            if _SECRET.search(each.upper())
        )

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            edits_files=self._description.edits_files,
            structured_output=self._description.answer != "none",
            reports_usage=self._description.reports_usage,
        )

    async def check(self) -> Readiness:
        try:
            program = find_program(self._description, self._name, self._environment)
            version = await self._version(program)
        except Fault as fault:
            return Readiness(False, str(fault), fault.hint, fault.failure)
        model = self._description.model
        known = self._description.reports_cost or price_of(model, self._prices) is not None
        return Readiness(
            True,
            f"{version} at {program}" if version else str(program),
            unpriced=None if known else model or f"the model of {self._name}",
        )

    async def propose(self, request: Request) -> Session:
        check_fit(request, self._name, self.capabilities)
        held = CommandSession(self._name, self._description, request, self._secrets, self._prices)
        try:
            held.check_price()
            program = find_program(self._description, self._name, self._environment)
            async with session_home(self._home) as home:
                invocation = self._invocation(program, request, home, held.model)
                held.begin(invocation)
                finished = await supervise(invocation, request, hear=held.hear, look=held.look)
                return held.conclude(finished, answer_file(self._description, request, home))
        except OSError as error:
            raise could_not_write(error).failed(held.session(), worked=held.worked) from error
        except Fault as fault:
            raise fault.failed(held.session(), worked=held.worked) from None

    def _invocation(self, program: Path, request: Request, home: Path, model: str | None) -> Invocation:
        prepared = prepare(self._description, program, request, home, self._environment, model)
        named = tuple(path for path in _named_files(self._description) if path.is_file())
        shown = (home, prepared.cwd, program, *named, *request.readable)
        hidden = private_places(self._home, self._environment, shown, request.hidden)
        return replace(prepared, readable=(*self._readable, *named, *prepared.readable), hidden=hidden)

    async def _version(self, program: Path) -> str | None:
        """What it says its version is; `None` if the description does not tell how to ask. Raises `Fault`."""
        if not self._description.version:
            return None
        async with session_home(self._home) as home:
            asking = self._invocation(program, Request("version"), home, None)
            argv = (str(program), *self._description.version)
            finished = await try_out(replace(asking, argv=argv), _VERSION_SECONDS)
        said = decoded(finished.stdout or finished.stderr).strip().splitlines()
        if not finished.ok:
            raise Fault(
                Failure.MISSING,
                f"{program} cannot be run: {said[-1] if said else finished.problem}",
                hint=f"reinstall it: {self._description.install}" if self._description.install else None,
            )
        return said[0] if said else "no version reported"
