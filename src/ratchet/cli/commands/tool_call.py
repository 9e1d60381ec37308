"""`ratchet tool run` and `test`"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ratchet.agents.client import read_pairs
from ratchet.cli.command import command
from ratchet.cli.commands.tool_look import type_option
from ratchet.cli.inputs import input_options, read_document
from ratchet.cli.output import note, print_document
from ratchet.cli.params import Amount, tool_argument
from ratchet.cli.progress import working
from ratchet.cli.toolbox import located, working_toolbox
from ratchet.cli.words import compact, cost_words, lines
from ratchet.kernel import Missing
from ratchet.tools.call import Occasion, ToolFailed
from ratchet.tools.examples import test_tool as try_examples
from ratchet.tools.invocation import CALL_SECONDS, use_tool
from ratchet.tools.sandboxed import NOT_FOUND
from ratchet.workflows import views
from ratchet.workflows.runs.tool_workflow import with_workflows

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.tools.definition import Tool
    from ratchet.tools.registry import Toolbox, ToolVersion

_ALL = "all"
_MIB = 1024 * 1024
_seconds_option = click.option(
    "--timeout",
    "seconds",
    type=Amount(86_400),
    default=CALL_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Wait for an answer no longer.",
)


@command(
    examples=[
        "ratchet tool run unit_converter --input conversion=c_to_f --input value=100",
        "ratchet tool run split_words --inputs words.json --json | jq .value",
    ],
    see=["tool test"],
)
@tool_argument
@input_options
@click.option("--version", metavar="VERSION", help="This version; the one that is called if not given.")
@_seconds_option
@click.pass_obj
def run(
    session: Session,
    tool: str,
    pairs: tuple[str, ...],
    document: str | None,
    version: str | None,
    seconds: float,
) -> int:
    """Call a tool and print its answer.

    A VALUE is read as JSON where the tool takes what that says: a number, true, a list. Otherwise it is text. The call
    is on record like those of workflows. What was measured goes to stderr.

    Exits with 0 when the tool answered, 1 when it failed, 3 when a program that it needs is not installed.
    """
    name, folders = located(tool)
    with working_toolbox(session, folders=folders) as (runtime, toolbox):
        chosen = toolbox.get(name, version)
        values = {**read_document(document), **_values(chosen.tool, pairs)}
        with _hearing(session, chosen) as listen:
            try:
                occasion = with_workflows(Occasion(runtime, actor="cli", seconds=seconds, listen=listen))
                called = asyncio.run(use_tool(chosen, values, occasion))
            except ToolFailed as failed:
                return _tell_failed(session, chosen, failed)
    found = views.call_record(chosen, called)
    if session.json:
        print_document(found)
        return 0
    _print_value(found["value"])
    note(_measured(found["metrics"]))
    if found["simulated"]:
        note("This is a simulation: a recorded answer was used.")
    return 0


@command(
    examples=["ratchet tool test unit_converter", "ratchet tool test all --type python"], see=["tool show"]
)
@click.argument(
    "tool",
    metavar="TOOL|all",
    help="The name of a tool, its file in `tools` beside a workflow, or all of them.",
)
@type_option
@_seconds_option
@click.pass_obj
def test(session: Session, tool: str, kind: str | None, seconds: float) -> int:
    """Run the examples of a tool as tests.

    Each example of the definition is a call; one that says what must come of it is held against that. `all` tests every
    tool that has examples, those of models as well, which may cost money; --type keeps to one type.

    Exits with 0 when all examples passed, 1 when one did not or there are none.
    """
    name, folders = located(tool)
    with working_toolbox(session, folders=folders) as (runtime, toolbox):
        occasion = with_workflows(Occasion(runtime, actor="cli", seconds=seconds))
        found = []
        for each in _chosen(toolbox, name, kind):
            with working(f"testing {each.name}"):
                tested = asyncio.run(try_examples(each.tool, occasion))
            found.append(views.tested_record(each, tested))
            if not session.json:
                _print_tested(found[-1])
    if session.json:
        print_document(found)
    elif not found:
        note("No tool has examples. Write them into its definition, as `examples`.")
    return 0 if found and all(each["passed"] for each in found) else 1


def _values(tool: Tool, pairs: tuple[str, ...]) -> dict[str, Any]:
    known = (tool.input_schema or {}).get("properties", {})
    return read_pairs(pairs, known if isinstance(known, Mapping) else {}, or_else="--inputs FILE with JSON")


@contextlib.contextmanager
def _hearing(session: Session, chosen: ToolVersion) -> Any:
    """What the tool says goes to stderr as it says it; a line moves meanwhile if it says nothing."""

    def listen(_kind: str, data: Mapping[str, Any]) -> None:
        print(lines(f"{data['text']}.")[:-1], end="", file=sys.stderr, flush=True)

    if session.json:
        yield lambda _kind, _data: None
        return
    with working(f"{chosen.name} works"):
        yield listen


def _tell_failed(session: Session, chosen: ToolVersion, failed: ToolFailed) -> int:
    if session.json:
        print_document(views.call_record(chosen, failed))
    else:
        note(f"error: {lines(str(failed))}")
        if failed.hint:
            note(f"hint: {lines(failed.hint)}")
    return Missing.exit_code if failed.use.exit_code == NOT_FOUND else 1


def _print_value(value: Any) -> None:
    if isinstance(value, str):
        # A terminal would obey what a tool has written; a program that reads it wants it as it is.
        print(lines(value) if sys.stdout.isatty() else value)
    else:
        print_document(value)


def _measured(metrics: Mapping[str, Any]) -> str:
    told = [f"{metrics['wall_ms']:.1f} ms"]
    if "cpu_ms" in metrics:
        told.append(f"{metrics['cpu_ms']:.1f} ms of CPU")
    if "peak_bytes" in metrics:
        told.append(f"{metrics['peak_bytes'] / _MIB:.1f} MiB")
    if metrics.get("tokens"):
        told += [f"{metrics['tokens']} tokens", cost_words(metrics)]
    return ", ".join(told)


def _chosen(toolbox: Toolbox, tool: str, kind: str | None) -> list[ToolVersion]:
    if tool != _ALL:
        return [toolbox.get(tool)]
    return [each for each in toolbox.list() if each.tool.examples and kind in (None, str(each.tool.type))]


def _print_tested(found: dict[str, Any]) -> None:
    examples = found["examples"]
    good = sum(example["passed"] for example in examples)
    told = f"{good} of {len(examples)} examples passed" if examples else "has no examples"
    print(f"{found['tool']} {found['version']}: {told}")
    for number, example in enumerate(examples, 1):
        if not example["passed"]:
            print(f"  example {number}: {lines(example['why'])}")
            print(f"    with {lines(compact(example['input']) or '{}')}")
