"""Ask an MCP server by its address, once: for its tools, or to call one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from ratchet.agents.contract import ToolShape
from ratchet.kernel import RatchetError


class StartFailed(RatchetError):
    """A server did not come to answer. `log` is the end of what it printed."""

    http_status = 502

    def __init__(self, message: str, *, hint: str | None = None, log: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log


class ServerGaveNoAnswer(RatchetError):
    """A server could not be reached, did not answer in time, or did not answer as MCP wants it."""

    http_status = 502


_SHOWN = 300
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class Called:
    """What a tool answered: `content` as MCP has it, and in `text` what of it a person can read."""

    text: str
    content: tuple[Mapping[str, Any], ...]
    structured: Any
    failed: bool


async def list_tools(url: str, seconds: float, *, token: str | None = None) -> tuple[ToolShape, ...]:
    """The tools of the server at `url`, which may want a token. Raises `ServerGaveNoAnswer`."""
    protocol = await load_protocol()
    with _explained(url, seconds):
        listed = await protocol.ask_for_tools(protocol.McpSite(url, token), seconds)
    return tuple(
        ToolShape(each.name, each.description or "", each.input_schema, each.output_schema) for each in listed
    )


async def list_offers(url: str, seconds: float) -> tuple[ToolShape, ...]:
    """The resources and prompts of the server at `url`, named `resource URI` and `prompt NAME`, in the form of tools: a
    caller relies on them in the same way. Raises `ServerGaveNoAnswer`."""
    protocol = await load_protocol()
    with _explained(url, seconds):
        found = await protocol.ask_for_offers(url, seconds)
    resources = {str(each.uri): each.description for each in found.resources}
    resources |= {str(each.uri_template): each.description for each in found.templates}
    return (
        *(ToolShape(f"resource {uri}", about or "", _NOTHING) for uri, about in resources.items()),
        *(
            ToolShape(f"prompt {each.name}", each.description or "", _arguments(each.arguments or ()))
            for each in found.prompts
        ),
    )


_NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}


def _arguments(given: Iterable[Any]) -> Mapping[str, Any]:
    """The arguments of a prompt, which are all texts, as a schema."""
    known = list(given)
    return {
        "type": "object",
        "properties": {each.name: {"type": "string"} for each in known},
        "required": [each.name for each in known if each.required],
    }


async def call_tool(
    url: str, tool: str, arguments: Mapping[str, Any], seconds: float, *, token: str | None = None
) -> Called:
    """Use a tool of the server at `url`. What it refuses to do is `failed`. Raises `ServerGaveNoAnswer`."""
    protocol = await load_protocol()
    with _explained(url, seconds):
        answer = await protocol.ask_tool(protocol.McpSite(url, token), tool, arguments, seconds)
    if isinstance(answer, protocol.MCPError):
        return Called(str(answer), (), None, failed=True)
    content = tuple(each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in answer.content)
    texts = [each["text"] for each in content if isinstance(each.get("text"), str)]
    return Called("\n".join(texts), content, answer.structured_content, failed=bool(answer.is_error))


async def load_protocol() -> ModuleType:
    """Our side of MCP. Imported in a thread: it takes a second in which the event loop has others to serve."""
    return await asyncio.to_thread(import_module, "ratchet.engines.mcp_client")


@contextmanager
def _explained(url: str, seconds: float) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        reason = _innermost(error)
        if isinstance(reason, TimeoutError):
            raise ServerGaveNoAnswer(
                f"{url} did not answer within {seconds:g} s", hint="look at the log of that server"
            ) from error
        if (hint := _hint(reason)) is not None:
            raise ServerGaveNoAnswer(str(reason)[:_LONGEST], hint=hint[:_SHOWN]) from error
        said = f"{type(reason).__name__}: {reason}"[:_SHOWN]
        raise ServerGaveNoAnswer(
            f"{url} does not answer as an MCP server: {said}", hint="look whether it runs and speaks MCP"
        ) from error


def _hint(error: BaseException) -> str | None:
    """What to do next, as the gateway says it when it cannot lead a call to the server."""
    data = getattr(error, "data", None)
    hint = data.get("hint") if isinstance(data, dict) else None
    return hint if isinstance(hint, str) else None


def _innermost(error: BaseException) -> BaseException:
    """The reason inside the groups that a client's task group makes of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
