"""Where tools of this process are handed out to a model in another one, each call until its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ratchet.engines.answer import check_schema, validate_answer
from ratchet.engines.session import Tool
from ratchet.kernel import Misuse, RatchetError

_ENDED = "the session has ended, so its tools cannot be used any more"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model is told. `failed` marks a mistake, its own or one of the tool."""

    text: str
    failed: bool = False


class Underway(Generic[T]):
    """Calls that run. Once it is closed none of them runs any more, and none begins."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[T]] = set()
        self._ended = asyncio.Event()

    async def run(self, call: Coroutine[Any, Any, T]) -> T | None:
        """What the call comes to; nothing if it was ended here. Cancelling this cancels it, and waits for that."""
        if self._ended.is_set():
            call.close()
            return None
        task = asyncio.create_task(call)
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if not self._ended.is_set():
                raise
            return None
        finally:
            self._running.discard(task)

    async def close(self) -> None:
        """Cancel what runs and wait until it has ended."""
        self._ended.set()
        while self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(set(self._running))


class Calls:
    """Raises `Misuse` for tools that cannot be offered: two of one name, or a schema that is none."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self.tools:
                raise Misuse(f"two tools are called {tool.name}", hint="give each a name of its own")
            try:
                check_schema(tool.input_schema)
            except ValueError as error:
                raise Misuse(f"the tool {tool.name} cannot be offered: {error}") from None
            self.tools[tool.name] = tool
        self._underway = Underway[Answer]()

    async def use(self, name: str, given: Mapping[str, Any]) -> Answer:
        """Run a tool as a model asked. Cancelling it cancels the tool, and waits for that."""
        tool = self.tools.get(name)
        if tool is None:
            return Answer(f"there is no tool {name!r}; there are: {', '.join(self.tools)}", failed=True)
        try:
            fitting = validate_answer(given, tool.input_schema)
        except (ValueError, RecursionError) as error:
            return Answer(f"the arguments of {name} cannot be used: {error}", failed=True)
        answer = await self._underway.run(_run(tool, fitting))
        return Answer(_ENDED, failed=True) if answer is None else answer

    async def close(self) -> None:
        """Cancel what runs and wait until it has ended. Nothing can be used afterwards."""
        await self._underway.close()


async def _run(tool: Tool, given: Mapping[str, Any]) -> Answer:
    try:
        return Answer(await tool.run(given))
    except Exception as error:  # noqa: BLE001 - told to the model, as a tool promises
        return Answer(in_words(error), failed=True)


def in_words(error: Exception) -> str:
    """What a model is told of an error, with the next step if one is known."""
    if not isinstance(error, RatchetError):
        return f"{type(error).__name__}: {error}"
    return f"{error} ({error.hint})" if error.hint else str(error)
