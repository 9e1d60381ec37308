"""`ratchet tool list`, `show`, `search`, `run`, `test` and `add`; the others are made from operations"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ratchet.cli.command import command
from ratchet.cli.inputs import input_options, read_document, with_file_texts
from ratchet.cli.operation import CliCall, Text, calling, looking_like
from ratchet.cli.output import confirm, note, print_document, print_foreign, show_list, show_one
from ratchet.cli.params import COUNT, ID, Amount, tool_argument
from ratchet.cli.progress import working
from ratchet.cli.words import compact, cost_words, lines
from ratchet.kernel import Missing, Misuse
from ratchet.operations import record
from ratchet.tools import operations as of_tools
from ratchet.tools.call import CALL_SECONDS
from ratchet.tools.definition import ToolType

if TYPE_CHECKING:
    from ratchet.cli.session import CliSession
    from ratchet.tools.definition import Tool
    from ratchet.tools.operations import WholeToolAnswer
    from ratchet.tools.registry import Toolbox, ToolVersion
    from ratchet.workflows.tool_operations import TestedToolAnswer

_ALL = "all"
_MIB = 1024 * 1024
_type_option = click.option(
    "--type", "kind", type=click.Choice([str(each) for each in ToolType]), help="Only of this type."
)
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
    "list",
    examples=[
        "ratchet tool list",
        "ratchet tool list --type executable",
        "ratchet tool list --by-score",
        "ratchet tool list --tag text --json | jq -r '.[].tool'",
    ],
    see=["tool show", "tool search"],
)
@_type_option
@click.option("--tag", type=Text(0, 200), metavar="TAG", help="Only with this tag.")
@click.option("--by-score", is_flag=True, help="The best first, with how good their calls were.")
def list_(session: CliSession, kind: str | None, tag: str | None, by_score: bool) -> None:
    """List tools by name.

    They come from YAML and JSON files in `tools` of Ratchet's home and in the folders of the setting `tools.folders`,
    from installed packages, from the MCP servers in the settings, and from `ratchet tool add`.
    """
    with calling(session) as call:
        with of_tools.opened_toolbox(call) as toolbox:
            found = sorted(toolbox.list(), key=lambda each: each.name)
            broken = list(toolbox.broken)
        records = [record(of_tools.ToolAnswer.of(version)) for version in found]
        if by_score:
            with call.read() as tx:
                ranked = of_tools.best_first(tx, found)
            records = [{**record(of_tools.ToolAnswer.of(each)), "score": score} for each, score in ranked]
    show_list(
        session,
        [each for each in records if kind in (None, each["type"]) and (tag is None or tag in each["tags"])],
        {
            "tool": lambda each: each["tool"],
            "score": lambda each: None if each.get("score") is None else f"{each['score']:.2f}",
            "type": lambda each: each["type"],
            "version": lambda each: each["version"],
            "pinned": lambda each: each["pinned"] or None,
            "broken": lambda each: each["broken"],
            "description": lambda each: each["problem"] or each["description"] or None,
        },
        record=lambda each: each,
        empty="No tools yet. `ratchet tool add FILE` adds one; docs/tools.md shows how one is written.",
    )
    for each in broken:
        note(f"warning: {lines(each.reason)}")


@looking_like(of_tools.show)
def show(session: CliSession, _call: CliCall, found: WholeToolAnswer) -> None:
    show_one(session, record(found), _fields(found))
    if not session.json:
        for warning in found.warnings:
            note(f"warning: {lines(warning)}")


@command(
    examples=[
        'ratchet tool search "convert temperatures"',
        'ratchet tool search "translate a text" --type llm --json',
    ],
    see=["tool run", "tool feedback"],
)
@click.argument("task", type=Text(1, 2000), metavar="TASK", help="What is to be done, in words.")
@_type_option
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only with this tag, and all others given.")
@click.option("--limit", "-n", type=COUNT, default=5, show_default=True, help="At most so many.")
def search(session: CliSession, task: str, kind: str | None, tags: tuple[str, ...], limit: int) -> None:
    """Find tools for a task, and say why each was chosen.

    Tools are found by meaning, and weighed by what is known of them: speed, cost, quality, how their calls went, and
    what people said of them.
    """
    with calling(session) as call:
        found = of_tools.choices(call, task, limit, type=None if kind is None else ToolType(kind), tags=tags)
    if session.json:
        print_document(list(map(record, found)))
        return
    # Only now: the other commands of this module search nothing.
    from ratchet.memory import search_advice

    if advice := search_advice():
        note(advice)
    if not found:
        note("No tool fits. `ratchet tool list` shows those that there are.")
    for each in found:
        print(f"{each.tool} {each.version}  {each.fitness:g}  {lines(each.description)}".rstrip())
        for reason in each.reasons:
            print(f"  {reason.points:+g}  {lines(reason.why)}")


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
def run(
    session: CliSession,
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
    from ratchet.tools.programs import NOT_FOUND
    from ratchet.workflows.tool_operations import call_version

    with calling(session) as call:
        chosen = of_tools.get_tool(call, of_tools.located(call, tool), version)
        values = {**read_document(document), **_values(chosen.tool, pairs)}
        with _listening(session, chosen) as listen:
            found = asyncio.run(call_version(call, chosen, values, seconds, listen))
    if session.json:
        print_document(record(found))
    elif found.ok:
        _print_value(found.value)
        note(_measured(found.metrics))
        if found.simulated:
            note("This is a simulation: a recorded answer was used.")
    else:
        note(f"error: {lines(found.error or '')}")
        if found.hint:
            note(f"hint: {lines(found.hint)}")
    if found.ok:
        return 0
    return Missing.exit_code if found.metrics.get("exit_code") == NOT_FOUND else 1


@command(
    examples=["ratchet tool test unit_converter", "ratchet tool test all --type python"], see=["tool show"]
)
@click.argument(
    "tool",
    metavar="TOOL|all",
    help="The name of a tool, its file in `tools` beside a workflow, or all of them.",
)
@_type_option
@_seconds_option
def test(session: CliSession, tool: str, kind: str | None, seconds: float) -> int:
    """Run the examples of a tool as tests.

    Each example of the definition is a call; one that says what must come of it is held against that. `all` tests every
    tool that has examples, those of models as well, which may cost money; --type keeps to one type.

    Exits with 0 when all examples passed, 1 when one did not or there are none.
    """
    from ratchet.workflows.tool_operations import try_version

    found = []
    with calling(session) as call:
        name = of_tools.located(call, tool)
        with of_tools.opened_toolbox(call) as toolbox:
            chosen = _chosen(toolbox, name, kind)
        for each in chosen:
            with working(f"testing {each.name}"):
                tested = asyncio.run(try_version(call, each, seconds))
            found.append(tested)
            if not session.json:
                _print_tested(tested)
    if session.json:
        print_document(list(map(record, found)))
    elif not found:
        note("No tool has examples. Write them into its definition, as `examples`.")
    return 0 if found and all(each.passed for each in found) else 1


@command(
    examples=[
        "ratchet tool add split_words.yaml",
        "ratchet tool add split_words.yaml --replace",
        "ratchet tool add --from-run 12 --tool count_words",
        "ratchet tool add --mcp files",
    ],
    see=["tool test", "tool versions"],
)
@click.argument("file", metavar="[FILE]", required=False, help="A definition, YAML or JSON.")
@click.option(
    "--from-run", "run_id", type=ID, metavar="RUN", help="A tool that this run's workflow brought with it."
)
@click.option("--tool", "name", metavar="TOOL", help="Which one, if the run has several.")
@click.option("--mcp", "server", metavar="SERVER", help="All tools of this MCP server of the settings.")
@click.option("--replace", is_flag=True, help="Let it take the place of one of the same id.")
def add(
    session: CliSession,
    file: str | None,
    run_id: int | None,
    name: str | None,
    server: str | None,
    replace: bool,
) -> None:
    """Add a tool from its definition, or a new version of it.

    FILE is a YAML or JSON definition; it is copied into the home with the files that it names. A changed definition is
    a new version, by its change_type. With --from-run a tool that was written for a workflow is put among all others.
    """
    if sum(each is not None for each in (file, run_id, server)) != 1:
        raise Misuse("it is not clear what to add", hint="give a FILE, --from-run RUN, or --mcp SERVER")
    with calling(session) as call, of_tools.opened_toolbox(call) as toolbox:
        if server is not None:
            _add_server(session, call, toolbox, server)
            return
        source = _file(file) if file is not None else _of_run(call, run_id or 0, name)
        added = toolbox.add(source, replace=replace)
    for warning in added.tool.warnings:
        note(f"warning: {lines(warning)}")
    confirm(session, record(of_tools.ToolAnswer.of(added)), f"{added.name} {added.version} is added.")


def _file(file: str) -> Path:
    path = Path(file)
    if not path.is_file():
        raise Misuse(f"there is no file {file}", hint="name a YAML or JSON file with a definition in it")
    return path


def _of_run(call: CliCall, run_id: int, name: str | None) -> Tool:
    from ratchet.workflows.runs.plan import tool_of_run

    with call.read() as tx:
        return tool_of_run(tx, run_id, name)


def _add_server(session: CliSession, call: CliCall, toolbox: Toolbox, server: str) -> None:
    from ratchet.tools.invocation import take_server

    with working(f"asking {server}"):
        found = asyncio.run(take_server(call.runtime, toolbox, server, actor=call.actor))
    if session.json:
        print_document([record(of_tools.ToolAnswer.of(each)) for each in found])
    else:
        print(f"{server} has {', '.join(each.name for each in found) or 'no tools'}.")


def _values(tool: Tool, pairs: tuple[str, ...]) -> dict[str, Any]:
    from ratchet.agents.client import read_pairs

    known = (tool.input_schema or {}).get("properties", {})
    given = with_file_texts(pairs)
    return read_pairs(given, known if isinstance(known, Mapping) else {}, or_else="--inputs FILE with JSON")


@contextlib.contextmanager
def _listening(session: CliSession, chosen: ToolVersion) -> Any:
    """What the tool says goes to stderr as it says it; a line moves meanwhile if it says nothing."""

    def listen(_kind: str, data: Mapping[str, Any]) -> None:
        print(lines(f"{data['text']}.")[:-1], end="", file=sys.stderr, flush=True)

    if session.json:
        yield lambda _kind, _data: None
        return
    with working(f"{chosen.name} works"):
        yield listen


def _print_value(value: Any) -> None:
    if isinstance(value, str):
        print_foreign(value)
    else:
        print_document(value)


def _measured(metrics: Mapping[str, Any]) -> str:
    parts = [f"{metrics['wall_ms']:.1f} ms"]
    if "cpu_ms" in metrics:
        parts.append(f"{metrics['cpu_ms']:.1f} ms of CPU")
    if "peak_bytes" in metrics:
        parts.append(f"{metrics['peak_bytes'] / _MIB:.1f} MiB")
    if metrics.get("tokens"):
        parts += [f"{metrics['tokens']} tokens", cost_words(metrics)]
    return ", ".join(parts)


def _chosen(toolbox: Toolbox, tool: str, kind: str | None) -> list[ToolVersion]:
    if tool != _ALL:
        return [toolbox.get(tool)]
    return [each for each in toolbox.list() if each.tool.examples and kind in (None, str(each.tool.type))]


def _print_tested(found: TestedToolAnswer) -> None:
    good = sum(example.passed for example in found.examples)
    passed = f"{good} of {len(found.examples)} examples passed" if found.examples else "has no examples"
    print(f"{found.tool} {found.version}: {passed}")
    for number, example in enumerate(found.examples, 1):
        if not example.passed:
            print(f"  example {number}: {lines(example.why or '')}")
            print(f"    with {lines(compact(example.input) or '{}')}")


def _fields(found: WholeToolAnswer) -> dict[str, object]:
    definition, stats = found.definition, found.stats
    return {
        "tool": found.tool,
        "type": found.type,
        "version": found.version + (" (pinned)" if found.pinned else ""),
        "from": found.source,
        "problem": found.problem,
        "broken": found.broken,
        "description": found.description or None,
        "tags": ", ".join(found.tags) or None,
        "takes": _schema_in_short(definition.get("input_schema")),
        "answers": _schema_in_short(definition.get("output_schema")),
        "constraints": compact(definition.get("constraints")),
        "examples": found.examples or None,
        "calls": stats.runs or None,
        "success": None if stats.success_rate is None else f"{stats.success_rate:.0%}",
        "time": None if stats.mean_wall_ms is None else f"{stats.mean_wall_ms:.1f}ms on average",
        "cost": f"{cost_words(record(stats))} so far" if stats.tokens else None,
        "score": None if stats.mean_score is None else f"{stats.mean_score:.2f} of 1",
    }


def _schema_in_short(schema: Any) -> str | None:
    """Its properties, or what it is where it has none. --json has the whole of it."""
    if not isinstance(schema, dict):
        return compact(schema)
    from ratchet.agents.client import described

    return "\n".join(described(schema)) or compact(schema)
