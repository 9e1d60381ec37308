"""The third and the fourth check: both servers start, and they answer the canary calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from ratchet.agents.checks.canary_file import Call, shown
from ratchet.agents.checks.finding import NotPassed
from ratchet.agents.checks.reading import read_schemas, read_state
from ratchet.agents.contract import CANARY, SCHEMA, STATE, Role, ToolShape
from ratchet.agents.servers import Launch, NoAnswer, Pair, Server, StartFailed, call_tool, serving_pair
from ratchet.agents.servers.ports import leased_port
from ratchet.config.agent_settings import Agents
from ratchet.judges.deadline import Deadline
from ratchet.sandbox import Policy, command_layers

MAX_TOOL_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}", re.ASCII)
# What is checked has no commit yet.
_NO_COMMIT = "0" * 40
_ANSWER = 2_000
_ENDING_SECONDS = 2.0
_LOG = 4_000


@asynccontextmanager
async def started(
    directory: Path, settings: Agents, section: dict[str, Any], *, agent: str
) -> AsyncIterator[Pair]:
    """Both servers in `directory`, with an Architect that does not answer. Raises `NotPassed` if they do not start.

    `section` of the report is told how they are confined.
    """
    with leased_port() as nobody:
        launch = Launch(agent=agent, commit=_NO_COMMIT, directory=directory, architect_port=nobody)
        section["layers"] = command_layers(Policy(network=settings.network))
        async with AsyncExitStack() as held:
            try:
                pair = await held.enter_async_context(serving_pair(launch, settings))
            except StartFailed as error:
                # The copy is gone when this is read.
                log = error.log.strip().replace(f"{directory}/", "")
                printed = f"\nIt printed at the end:\n{log[-_LOG:]}" if log else ""
                raise NotPassed(f"{error}{printed}", {"log": log}) from None
            yield pair


async def check_tools(
    tools: Mapping[Role, Sequence[ToolShape]], directory: Path, deadline: Deadline
) -> dict[str, Any]:
    """Raises `NotPassed` unless each server has tools that a caller can understand; what the report shows of them."""
    for role, those in tools.items():
        _check_plain(role, those)
    schemas = {
        f"the {kind} schema of {role}.{tool.name}": schema
        for role, those in tools.items()
        for tool in those
        for kind, schema in (("input", tool.input_schema), ("output", tool.output_schema))
        if schema is not None
    }
    await read_schemas(schemas, directory, deadline)
    return {f"{role}_tools": [tool.name for tool in those] for role, those in tools.items()}


async def check_calls(pair: Pair, calls: Sequence[Call], settings: Agents, answers: list[Any]) -> None:
    """Make the calls in order; `answers` grows by what came of each. Raises `NotPassed` at the first that fails."""
    servers = {Role.RUNNER: pair.runner, Role.TUNER: pair.tuner}
    for call in calls:
        server = servers[call.server]
        names = [tool.name for tool in server.tools]
        if call.tool not in names:
            raise NotPassed(
                f"{CANARY} calls {call.told()}, but the {call.server} has only {', '.join(names)}"
            )
        answer: dict[str, Any] = {"call": call.told()}
        answers.append(answer)
        problem = await _call(server, call, settings.call_seconds, answer)
        if problem is not None:
            raise NotPassed(f"{call.told()}: {problem}")
    for server in servers.values():
        problem = await server.problem(settings.call_seconds)
        if problem is not None:
            raise NotPassed(
                f"after the calls of {CANARY} the {server.role} does not answer any more: {problem}"
            )


async def check_state_after(source: Path, directory: Path, deadline: Deadline) -> None:
    """Raises `NotPassed` if the state that the servers left does not fit the schema of `source`."""
    try:
        await read_state(source / SCHEMA, directory / STATE, deadline)
    except NotPassed as finding:
        raise NotPassed(f"after the calls of {CANARY}: {finding}", finding.details) from None


async def _call(server: Server, call: Call, seconds: float, answer: dict[str, Any]) -> str | None:
    """Why a call does not pass."""
    try:
        called = await call_tool(server.url, call.tool, call.arguments, seconds)
    except NoAnswer as error:
        ended = await _ended(server)
        answer["problem"] = f"no answer: {ended or error}"
        return str(answer["problem"])
    text = called.text[:_ANSWER]
    answer |= {"failed": called.failed, "text": text, "structured": shown(called.structured)}
    if called.failed:
        return f"it answered with the error {text!r}"
    unmet = call.unmet(called)
    return None if unmet is None else f"the answer is not as expected: {unmet}; it is {text!r}"


async def _ended(server: Server) -> str | None:
    """Why a server has ended, if it has. Its connections break before that is known."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ENDING_SECONDS):
            return await server.ended()
    return None


def _check_plain(role: Role, tools: Sequence[ToolShape]) -> None:
    if not tools:
        raise NotPassed(f"the {role} has no tools; give it at least one with @{role}.tool")
    for name, times in Counter(tool.name for tool in tools).items():
        if times > 1:
            raise NotPassed(f"the {role} has {times} tools called {name!r}; give each a name of its own")
        if not _NAME.fullmatch(name):
            raise NotPassed(
                f"the {role} has a tool called {name[:200]!r}; use letters, digits, '_', '-', '.' and '/'"
            )
    for tool in tools:
        if not _is_plain(tool):
            raise NotPassed(
                f"what {role}.{tool.name} says of itself is no plain text of at most {MAX_TOOL_BYTES} bytes; mend it"
            )
        if tool.input_schema.get("type") != "object":
            raise NotPassed(f'the input schema of {role}.{tool.name} must say "type": "object"')


def _is_plain(tool: ToolShape) -> bool:
    """Whether what a tool says of itself can be stored: databases know neither NUL nor half a character."""
    try:
        whole = json.dumps(
            [tool.name, tool.description, tool.input_schema, tool.output_schema],
            ensure_ascii=False,
            allow_nan=False,
        ).encode()
    except (ValueError, RecursionError):
        return False
    return len(whole) <= MAX_TOOL_BYTES and b"\\u0000" not in whole
