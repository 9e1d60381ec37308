"""`ratchet agent tools` and `call`"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ratchet.agents.client import CALL_SECONDS, Callee, check_arguments, parse_arguments, signature, tools_of
from ratchet.agents.client import call as call_agent
from ratchet.agents.contract import Role, ToolShape
from ratchet.cli.command import command
from ratchet.cli.opening import existing_runtime
from ratchet.cli.output import note, print_document, show_list
from ratchet.cli.params import Amount, agent_argument
from ratchet.cli.progress import working
from ratchet.cli.words import lines
from ratchet.kernel import Misuse

if TYPE_CHECKING:
    from ratchet.cli.session import Session

_version_option = click.option(
    "--version", metavar="VERSION", help="Of this version; of the current one if not given."
)
_tuner_option = click.option(
    "--tuner", is_flag=True, help="Of the Tuner, which takes feedback, not the Runner."
)


@command(
    "tools",
    examples=[
        "ratchet agent tools greeter",
        "ratchet agent tools greeter --tuner",
        "ratchet agent tools greeter --version 0.0.0 --json",
    ],
    see=["agent call"],
)
@agent_argument
@_version_option
@_tuner_option
@click.pass_obj
def tools_(session: Session, name: str, version: str | None, tuner: bool) -> None:
    """List the tools of an agent, as it tells them itself.

    The agent is asked at its stable address. If `ratchet serve` does not run, the agent is started for this command. An
    argument with a question mark may be left out.
    """
    loaded = session.load()
    with existing_runtime(session) as runtime, working(f"asking {name}"):
        found = asyncio.run(tools_of(runtime, loaded, _callee(name, version, tuner=tuner)))
    show_list(
        session,
        found,
        {
            "tool": lambda tool: tool.name,
            "arguments": lambda tool: ", ".join(signature(tool)) or None,
            "description": lambda tool: tool.description,
        },
        record=asdict,
        empty=f"{name} has no tools.",
    )


@command(
    examples=[
        "ratchet agent call greeter greet name=Ada",
        "ratchet agent call sums add numbers='[1, 2, 3]'",
        "ratchet agent call sums add --arguments '{\"numbers\": [1, 2, 3]}'",
        'ratchet agent call greeter give_feedback --tuner text="too formal"',
    ],
    see=["agent tools", "agent logs", "agent feedback"],
)
@agent_argument
@click.argument("tool", metavar="TOOL", help="A tool that `ratchet agent tools` lists.")
@click.argument("pairs", metavar="[KEY=VALUE]…", nargs=-1, help="Arguments of the tool.")
@click.option("--arguments", "document", metavar="JSON", help="All arguments as one JSON object.")
@_version_option
@_tuner_option
@click.option(
    "--timeout",
    type=Amount(86_400),
    default=CALL_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Wait for an answer no longer.",
)
@click.pass_obj
def call(
    session: Session,
    name: str,
    tool: str,
    pairs: tuple[str, ...],
    document: str | None,
    version: str | None,
    tuner: bool,
    timeout: float,
) -> int:
    """Call a tool of an agent and print its answer.

    A VALUE is read as JSON where the tool takes what that says: a number, true, a list. Otherwise it is text. If
    `ratchet serve` does not run, the agent is started for this call.

    Exits with 1 when the tool says that it failed, or does not answer.
    """
    if pairs and document is not None:
        raise Misuse("arguments are given twice", hint="use KEY=VALUE or --arguments")
    whole = None if document is None else _parsed(document)

    def arguments(shape: ToolShape) -> Mapping[str, Any]:
        return parse_arguments(shape, pairs) if whole is None else check_arguments(shape, whole)

    loaded = session.load()
    callee = _callee(name, version, tuner=tuner)
    with existing_runtime(session) as runtime, working(f"{name} works"):
        answer = asyncio.run(call_agent(runtime, loaded, callee, tool, arguments, seconds=timeout))
    if session.json:
        print_document({"agent": name, "tool": tool, **asdict(answer)})
    else:
        _print_answer(answer.text, answer.content)
    if answer.failed and not session.json:
        note(f"error: {tool} of {name} failed")
    return 1 if answer.failed else 0


def _callee(name: str, version: str | None, *, tuner: bool) -> Callee:
    return Callee(name, Role.TUNER if tuner else Role.RUNNER, version)


def _parsed(document: str) -> dict[str, Any]:
    try:
        found = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"--arguments is not JSON: {error}", hint="""such as --arguments '{"n": 3}'""") from None
    if not isinstance(found, dict):
        raise Misuse("--arguments is no JSON object", hint="""such as --arguments '{"n": 3}'""")
    return found


def _print_answer(text: str, content: Sequence[Mapping[str, Any]]) -> None:
    # A terminal would obey what an agent has written; a program that reads the answer wants it as it is.
    print(lines(text) if sys.stdout.isatty() else text)
    others = sorted({str(part.get("type")) for part in content if "text" not in part})
    if others:
        note(f"Besides text it answered with: {', '.join(others)}; --json shows all of it.")
