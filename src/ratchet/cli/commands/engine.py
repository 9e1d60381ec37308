"""`ratchet engine …`"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import click

from ratchet.cli.command import command
from ratchet.cli.output import note, show_list, show_one
from ratchet.cli.params import Amount
from ratchet.cli.progress import working
from ratchet.cli.session import CliSession, configure_logs
from ratchet.cli.words import cost_words
from ratchet.engines import Capabilities, EventKind, Request, SessionEvent
from ratchet.engines.engine import Fault
from ratchet.engines.providers import default_engine
from ratchet.engines.registry import EngineContext, engine_names, look_at, open_engine
from ratchet.engines.replay import Recording
from ratchet.kernel import Missing, Misuse, RatchetError
from ratchet.programs import run_in_terminal

_MISSING = 3
_LOGINS = {"codex": ("login",), "claude": ("auth", "login")}


@dataclass(frozen=True, slots=True)
class _Listed:
    name: str
    default: bool
    capabilities: Capabilities


@command(
    "list",
    examples=["ratchet engine list", "ratchet engine list --json | jq -r '.[].name'"],
    see=["engine check"],
)
def list_(session: CliSession) -> None:
    """List the engines and what each can do.

    These are the built-in ones, agents that are described in the settings under [engines.command.NAME], and those of
    installed packages. An engine is named as ENGINE or as ENGINE:OPTION, such as llm:deep or replay:FILE.
    """
    around = _surroundings(session)
    default = default_engine(around.settings, around.environment).partition(":")[0]
    found = []
    for name in engine_names(around.settings):
        try:
            found.append(_Listed(name, name == default, open_engine(name, around).capabilities))
        except RatchetError as error:
            # One that somebody else installed must not hide the others.
            note(f"left out: {error}")
    able = [each.name for each in fields(Capabilities)]
    show_list(
        session,
        found,
        {
            "engine": lambda each: f"{each.name} (default)" if each.default else each.name,
            **{name.replace("_", " "): _telling(name) for name in able},
        },
        record=lambda each: {
            "name": each.name,
            "default": each.default,
            "capabilities": asdict(each.capabilities),
        },
        empty="There are no engines.",
    )


@command(
    examples=["ratchet engine check", "ratchet engine check codex claude"], see=["engine list", "doctor"]
)
@click.argument("names", nargs=-1, metavar="[ENGINE]...", help="Only these; all if none is named.")
def check(session: CliSession, names: tuple[str, ...]) -> int:
    """Look whether engines could be used now, and say what is missing.

    Starts no session and costs nothing. Exits with 3 if one that was named is not ready, or if none is.
    """
    around = _surroundings(session)
    wanted = names or tuple(engine_names(around.settings))
    for name in names:
        open_engine(name, around)
    with working("looking"):
        found = asyncio.run(look_at(wanted, around))
    show_list(
        session,
        found,
        {
            "engine": lambda each: each.name,
            "ready": lambda each: "yes" if each.readiness.ready else "no",
            "detail": lambda each: each.readiness.detail,
            "to fix": lambda each: each.readiness.fix or "",
        },
        record=lambda each: {"name": each.name, **asdict(each.readiness)},
        empty="There are no engines.",
    )
    ready = [each.readiness.ready for each in found]
    return 0 if (all(ready) if names else any(ready)) else _MISSING


@command(
    examples=["ratchet engine login codex", "ratchet engine login claude"], see=["engine check", "setup"]
)
@click.argument("name", metavar="ENGINE", type=click.Choice(list(_LOGINS)), help="codex or claude.")
def login(session: CliSession, name: str) -> int:
    """Log in to the account of an agent program.

    Starts the login of the program that Ratchet uses, which need not be on the PATH. The login is kept where the
    program keeps it, and used there. Exits as the program does, and with 3 if it is not installed.
    """
    around = _surroundings(session)
    try:
        path = asyncio.run(_program(name, around))
    except Fault as fault:
        raise Missing(str(fault), hint=fault.hint) from None
    return run_in_terminal([path, *_LOGINS[name]])


async def _program(name: str, around: EngineContext) -> Path:
    # Loaded here: the other commands open an engine by its name.
    if name == "claude":
        from ratchet.engines.claude.engine import find_program as find_claude

        return (await find_claude(around.settings.engines.claude, around.environment)).path
    from ratchet.engines.codex.engine import find_program as find_codex

    return (await find_codex(around.settings.engines.codex, around.environment)).path


@command(
    examples=[
        'ratchet engine record codex "Write a haiku to poem.txt." --cassette poem.json',
        'ratchet engine record llm:deep "Sum 1 to 9." --schema answer.json --cassette sum.json',
    ],
    see=["engine list"],
)
@click.argument("name", metavar="ENGINE", help="The engine to record.")
@click.argument("prompt", help="What it is asked to do.")
@click.option(
    "--cassette",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="Where the recording goes; it must not exist yet.",
)
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the engine works, and what it may change. By default an empty directory that is removed afterwards.",
)
@click.option("--model", metavar="NAME", help="The model, instead of the configured one.")
@click.option("--system", metavar="TEXT", help="Instructions that come before the prompt; none by default.")
@click.option(
    "--schema",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A JSON Schema that the answer must fit.",
)
@click.option(
    "--deadline",
    type=Amount(),
    metavar="SECONDS",
    help="End the session after this time; engines.deadline_seconds if not given.",
)
def record(
    session: CliSession,
    /,
    name: str,
    prompt: str,
    cassette: Path,
    workspace: Path | None,
    schema: Path | None,
    deadline: float | None,
    **given: Any,
) -> None:
    """Run one session and keep it as a cassette, to be replayed without a model.

    The engine `replay:FILE` plays it back bit for bit; what it makes is marked as simulated.
    """
    around = _surroundings(session)
    if cassette.exists():
        raise Misuse(f"{cassette} exists already", hint="name another file, or remove it")
    engine = Recording(open_engine(name, around), cassette)
    with tempfile.TemporaryDirectory(prefix="ratchet-record-") as empty:
        request = Request(
            prompt,
            workspace=(workspace or Path(empty)).resolve(),
            output_schema=None if schema is None else _schema(schema),
            deadline_seconds=deadline or around.settings.engines.deadline_seconds,
            listen=_tell,
            **given,
        )
        ended = asyncio.run(engine.propose(request))
    show_one(
        session,
        {"cassette": str(cassette), "text": ended.text, "output": ended.output, "usage": asdict(ended.usage)},
        {
            "cassette": str(cassette),
            "answer": ended.text,
            "tokens": f"{ended.usage.input_tokens} in, {ended.usage.output_tokens} out",
            "cost": cost_words(ended.usage),
            "play it": f"ratchet engine check replay:{cassette}",
        },
    )


def _surroundings(session: CliSession) -> EngineContext:
    loaded = session.load()
    configure_logs(loaded)
    return EngineContext(loaded.settings, loaded.home, os.environ)


def _schema(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise Misuse(f"{path} is not JSON: {error}", hint="give a file with a JSON Schema") from None


def _tell(event: SessionEvent) -> None:
    if event.kind is not EventKind.USAGE and event.text:
        note(f"{event.kind}: {event.text.strip().splitlines()[0][:160]}")


def _telling(name: str) -> Any:
    return lambda each: "yes" if getattr(each.capabilities, name) else ""
