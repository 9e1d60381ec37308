"""The third and the fourth check: both servers start, and they answer the calls of canary.json."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratchet.agentkit import AgentKitError, StateStore
from ratchet.agentkit.files import replace_whole
from ratchet.agents.checks.files import NotPassed, read_schemas, read_state
from ratchet.agents.contract import CANARY, SCHEMA, STATE, Role, ToolShape
from ratchet.agents.servers import (
    AgentServer,
    Called,
    Launch,
    Pair,
    ServerGaveNoAnswer,
    StartFailed,
    call_tool,
    serving_pair,
)
from ratchet.agents.servers.client import list_offers
from ratchet.agents.servers.server import leased_port
from ratchet.config.workflow_settings import Agents
from ratchet.judges.judge import Deadline
from ratchet.judges.reports import BadReport, strict_json
from ratchet.kernel import shortened
from ratchet.sandbox import Policy, command_layers

MAX_CALLS = 50
_KEYS = {"tool", "arguments", "expect", "server"}
_EXPECTED = ("contains", "equals")
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class CanaryCall:
    """One call. `expect` is empty, or has one of `contains` and `equals`."""

    tool: str
    arguments: Mapping[str, Any]
    expect: Mapping[str, Any]
    server: Role

    def described(self) -> str:
        return f"{self.server}: {self.tool}({shown(self.arguments)})"

    def unmet(self, answer: Called) -> str | None:
        """What is missing from an answer."""
        if "contains" in self.expect and self.expect["contains"] not in answer.text:
            return f"it does not contain {self.expect['contains']!r}"
        if "equals" in self.expect and not any(
            same_json(self.expect["equals"], each) for each in answer_values(answer)
        ):
            return f"it does not equal {shown(self.expect['equals'])}"
        return None


def read_calls(content: bytes) -> tuple[CanaryCall, ...]:
    """The calls in canary.json. Raises `NotPassed`."""
    try:
        found = strict_json(content, CANARY)
    except BadReport as error:
        raise NotPassed(str(error)) from None
    if not isinstance(found, list):
        raise NotPassed(f"{CANARY} is {type(found).__name__}, not a list of calls")
    if len(found) > MAX_CALLS:
        raise NotPassed(f"{CANARY} has {len(found)} calls; leave at most {MAX_CALLS}")
    return tuple(_read_call(each, f"call {number} of {CANARY}") for number, each in enumerate(found, 1))


def shown(value: Any) -> str:
    """A JSON value as a reason shows it."""
    text = json.dumps(value, ensure_ascii=False)
    return shortened(text, _SHOWN)


def _read_call(found: Any, label: str) -> CanaryCall:
    if not isinstance(found, dict):
        raise NotPassed(f"{label} is {type(found).__name__}, not an object")
    unknown = sorted(found.keys() - _KEYS)
    if unknown:
        raise NotPassed(f"{label} has {unknown[0]!r}; it may have {', '.join(sorted(_KEYS))}")
    tool, arguments = found.get("tool"), found.get("arguments")
    if not isinstance(tool, str) or not tool:
        raise NotPassed(f'{label} needs "tool", the name of a tool')
    if not isinstance(arguments, dict):
        raise NotPassed(f'{label} needs "arguments", an object')
    server = found.get("server", Role.RUNNER)
    if server not in tuple(Role):
        raise NotPassed(f'{label} has "server": {shown(server)}; it may be "runner" or "tuner"')
    return CanaryCall(tool, arguments, _read_expect(found.get("expect", {}), label), Role(server))


def _read_expect(found: Any, label: str) -> Mapping[str, Any]:
    if not isinstance(found, dict) or not found.keys() <= set(_EXPECTED) or len(found) > 1:
        raise NotPassed(f'{label} may expect {{"contains": text}} or {{"equals": value}}, not {shown(found)}')
    if not isinstance(found.get("contains", ""), str):
        raise NotPassed(f'{label} expects "contains": {shown(found["contains"])}, which is not a text')
    return found


def answer_values(answer: Called) -> list[Any]:
    """An answer in the forms that an author may mean: a server wraps what is no object, and text may be JSON."""
    found = [answer.text]
    if answer.structured is not None:
        found.append(answer.structured)
        if isinstance(answer.structured, dict) and answer.structured.keys() == {"result"}:
            found.append(answer.structured["result"])
    else:
        with contextlib.suppress(ValueError, RecursionError):
            found.append(json.loads(answer.text))
    return found


def same_json(wanted: Any, value: Any) -> bool:
    """Whether two JSON values are equal; `true` is no number."""
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    if isinstance(wanted, dict) and isinstance(value, dict):
        return wanted.keys() == value.keys() and all(same_json(wanted[key], value[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(value, list):
        return len(wanted) == len(value) and all(map(same_json, wanted, value))
    return bool(wanted == value)


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
    with leased_port() as unused:
        launch = Launch(agent=agent, commit=_NO_COMMIT, directory=directory, architect_port=unused)
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


async def check_offers(pair: Pair, settings: Agents) -> tuple[ToolShape, ...]:
    """What callers may rely on besides the tools of the Runner. Raises `NotPassed` where it cannot be listed."""
    found = [replace(tool, name=f"tuner {tool.name}") for tool in pair.tuner.tools]
    for server, before in ((pair.runner, ""), (pair.tuner, "tuner ")):
        try:
            listed = await list_offers(server.url, settings.call_seconds)
        except ServerGaveNoAnswer as error:
            raise NotPassed(f"the {server.role} does not list its resources and prompts: {error}") from None
        found += [replace(each, name=f"{before}{each.name}") for each in listed]
    unfit = next((each.name for each in found if not _is_plain(each)), None)
    if unfit is not None:
        raise NotPassed(
            f"what {unfit[:200]!r} says of itself is no plain text of a reasonable length; fix it"
        )
    return tuple(found)


async def check_calls(pair: Pair, calls: Sequence[CanaryCall], settings: Agents, answers: list[Any]) -> None:
    """Make the calls in order; `answers` grows by what came of each. Raises `NotPassed` at the first that fails."""
    servers = {Role.RUNNER: pair.runner, Role.TUNER: pair.tuner}
    for call in calls:
        server = servers[call.server]
        names = [tool.name for tool in server.tools]
        if call.tool not in names:
            raise NotPassed(
                f"{CANARY} calls {call.described()}, but the {call.server} has only {', '.join(names)}"
            )
        answer: dict[str, Any] = {"call": call.described()}
        answers.append(answer)
        problem = await _call(server, call, settings.call_seconds, answer)
        if problem is not None:
            raise NotPassed(f"{call.described()}: {problem}")
    for server in servers.values():
        problem = await server.problem(settings.call_seconds)
        if problem is not None:
            raise NotPassed(
                f"after the calls of {CANARY} the {server.role} does not answer any more: {problem}"
            )


async def check_state_after(source: Path, directory: Path, deadline: Deadline) -> None:
    """Raises `NotPassed` if the state that the servers left does not fit the schema of `source`."""
    try:
        await asyncio.to_thread(_lay_out_state, directory)
        await read_state(source / SCHEMA, directory / STATE, deadline)
    except AgentKitError as error:
        raise NotPassed(f"after the calls of {CANARY}: {error}") from None
    except NotPassed as finding:
        raise NotPassed(f"after the calls of {CANARY}: {finding}", finding.details) from None


def _lay_out_state(directory: Path) -> None:
    """Write the state as a file, as its schema is held against it."""
    state = StateStore(directory, _ENDING_SECONDS).read()
    replace_whole(directory / STATE, json.dumps(state).encode())


async def _call(server: AgentServer, call: CanaryCall, seconds: float, answer: dict[str, Any]) -> str | None:
    """Why a call does not pass."""
    try:
        called = await call_tool(server.url, call.tool, call.arguments, seconds)
    except ServerGaveNoAnswer as error:
        ended = await _ended(server)
        answer["problem"] = f"no answer: {ended or error}"
        return str(answer["problem"])
    text = called.text[:_ANSWER]
    answer |= {"failed": called.failed, "text": text, "structured": shown(called.structured)}
    if called.failed:
        return f"it answered with the error {text!r}"
    unmet = call.unmet(called)
    return None if unmet is None else f"the answer is not as expected: {unmet}; it is {text!r}"


async def _ended(server: AgentServer) -> str | None:
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
                f"what {role}.{tool.name} says of itself is no plain text of at most {MAX_TOOL_BYTES} bytes; fix it"
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
