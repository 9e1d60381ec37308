"""`ratchet dev …`"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ratchet.cli.command import command
from ratchet.cli.output import confirm, note, print_line
from ratchet.cli.params import PORT
from ratchet.cli.progress import working
from ratchet.cli.session import CliSession
from ratchet.cli.words import one_line
from ratchet.kernel import Misuse
from ratchet.modelserver import Exchange, ModelServer, Script, Turn, read_script
from ratchet.modelserver.server import claude_environment, codex_config, openai_environment

_HELLO = Turn(text="This is a scripted answer.", repeat="always")


@command(
    "model-server",
    examples=["ratchet dev model-server", "ratchet dev model-server --script talk.toml --port 8900 --once"],
)
@click.option(
    "--script",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A script, TOML or JSON; may be given again. Without one the model always says the same.",
)
@click.option(
    "--port",
    type=PORT,
    default=0,
    show_default="a free one",
    metavar="PORT",
    help="The port.",
)
@click.option(
    "--once", is_flag=True, help="End when every script is used up; exit 1 if a request had no answer."
)
def model_server(session: CliSession, files: tuple[Path, ...], port: int, once: bool) -> int:
    """Serve scripted models to real agents, without a network or a key.

    It speaks OpenAI Responses, OpenAI chat and Anthropic Messages on the loopback interface until Ctrl-C. Every answer
    is marked: its id begins with `scripted-`. Each request is logged as one line; docs/model-server.md describes the
    scripts.
    """
    turns = _turns(files)
    scripts: list[Script] = []
    ended = itertools.count(1)
    done = threading.Event()

    def watch(exchange: Exchange) -> None:
        _log(session, exchange)
        begun = sum(len(script.requests) for script in scripts)
        if next(ended) == begun and once and not any(script.left for script in scripts):
            done.set()

    with ModelServer(port=port, watch=watch) as server:
        scripts += [server.script(name, each) for name, each in turns.items()]
        try:
            _introduce(session, server, turns)
            while not done.wait(0.5):  # a wait without an end would hide a signal that comes just before it
                pass
        except KeyboardInterrupt:
            note("Stopped.")
    return 1 if once and any(script.problems or script.left for script in scripts) else 0


def _turns(files: Sequence[Path]) -> Mapping[str, Sequence[Turn]]:
    found: dict[str, Sequence[Turn]] = {}
    for file in files:
        script = read_script(file)
        if script.name in found:
            raise Misuse(
                f"two scripts have the name {script.name}", hint='give one of them another: name = "…"'
            )
        found[script.name] = script.turns
    return found or {"hello": [_HELLO]}


def _introduce(session: CliSession, server: ModelServer, turns: Mapping[str, Sequence[Turn]]) -> None:
    if session.json:
        print_line({"url": server.url, "scripts": [_record(server, name, turns[name]) for name in turns]})
        return
    for name, each in turns.items():
        print(f"Script {name}, {len(each)} turns: {server.openai_url(name)} and {server.anthropic_url(name)}")
    name = next(iter(turns))
    print("\nCodex, in the config.toml of a CODEX_HOME of its own:\n")
    print(_indented(codex_config(server.openai_url(name))))
    print("Claude:\n")
    print(_indented(_exports(claude_environment(server.anthropic_url(name)))))
    print("OpenAI's clients and Ollama's:\n")
    print(_indented(_exports(openai_environment(server.openai_url(name)))), flush=True)
    note("Ctrl-C ends it. Requests:")


def _record(server: ModelServer, name: str, turns: Sequence[Turn]) -> dict[str, Any]:
    openai, anthropic = server.openai_url(name), server.anthropic_url(name)
    return {
        "name": name,
        "turns": len(turns),
        "openai_url": openai,
        "anthropic_url": anthropic,
        "codex_config": codex_config(openai),
        "claude_environment": claude_environment(anthropic),
        "openai_environment": openai_environment(openai),
    }


def _log(session: CliSession, exchange: Exchange) -> None:
    seen = exchange.seen
    model = str(seen.body.get("model", ""))
    if session.json:
        # Headers stay out: they hold the client's key.
        turn = None if exchange.turn is None else asdict(exchange.turn)
        request = {"path": seen.path, "model": model, "at": seen.at, "said": seen.newest, "tools": seen.tools}
        print_line({"script": exchange.script, "request": request, "turn": turn, "ending": exchange.ending})
        return
    status = 400 if exchange.turn is None else exchange.turn.status
    milliseconds = round(exchange.seconds * 1000)
    note(one_line(f"{exchange.script} {seen.path} {model} {status} {milliseconds} ms {exchange.ending}"))


def _exports(variables: Mapping[str, str]) -> str:
    return "".join(f"export {name}={value}\n" for name, value in variables.items())


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


@command(examples=["ratchet dev reference", "ratchet dev reference --out /tmp/reference --json"], see=["man"])
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("docs/reference"),
    show_default=True,
    metavar="DIR",
    help="Where the pages go.",
)
def reference(session: CliSession, out: Path) -> None:
    """Rewrite the reference of commands, API and settings from the code.

    For those who work on Ratchet itself: run it at the top of the repository whenever a command, a request or a setting
    has changed.
    """
    # Not before it is asked for: it imports every command and the server.
    from ratchet.cli.reference.files import write_pages

    with working("reading the code"):
        changed = write_pages(out)
    confirm(
        session,
        {"directory": str(out), "changed": [str(path) for path in changed]},
        "\n".join(f"{path} is rewritten." for path in changed) or f"{out} is up to date.",
    )
