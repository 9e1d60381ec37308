"""The two servers of an agent: the Runner, which does its work, and the Tuner, which hears how it was."""

from __future__ import annotations

import inspect
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar, overload

from ratchet.agentkit.errors import Misused
from ratchet.agentkit.logs import LISTEN, ROLE, URL, log, log_as, surroundings

F = TypeVar("F", bound=Callable[..., Any])

_BACKLOG = 2048


class _Service:
    """A server that is started as `python FILE PORT …` and answers at http://127.0.0.1:PORT/mcp."""

    role: ClassVar[str]
    arguments: ClassVar[tuple[str, ...]]

    def __init__(self, name: str, instructions: str | None = None) -> None:
        self.name = name
        self.instructions = instructions
        self._tools: dict[str, tuple[str, Callable[..., Any]]] = {}
        self._resources: dict[str, tuple[str, str | None, Callable[..., Any]]] = {}
        self._prompts: dict[str, tuple[str, Callable[..., Any]]] = {}

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, /, *, name: str | None = None, description: str | None = None) -> Callable[[F], F]: ...

    def tool(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> Any:
        """Make a function a tool: `@runner.tool`, or `@runner.tool(name=…, description=…)`.

        Its docstring tells callers what it does, its annotations what it takes and returns. A function that is not
        async runs in a thread. The function itself stays what it was.
        """

        def add(added: F) -> F:
            called = name or added.__name__
            if called in self._tools:
                raise Misused(
                    f"{self.name} has two tools called {called}", hint="give one of them another name"
                )
            self._tools[called] = (description or inspect.getdoc(added) or "", added)
            return added

        return add if function is None else add(function)

    def resource(
        self, uri: str, /, *, description: str | None = None, mime_type: str | None = None
    ) -> Callable[[F], F]:
        """Make a function a resource: what it returns is read at `uri`, as text, bytes or JSON.

        `notes://{number}` is a template: its names are the function's parameters.
        """

        def add(added: F) -> F:
            if uri in self._resources:
                raise Misused(f"{self.name} has two resources {uri}", hint="give one of them another URI")
            self._resources[uri] = (description or inspect.getdoc(added) or "", mime_type, added)
            return added

        if callable(uri):
            raise Misused("a resource needs a URI", hint=f'write @{self.role}.resource("notes://all")')
        return add

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(self, /, *, name: str | None = None, description: str | None = None) -> Callable[[F], F]: ...

    def prompt(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> Any:
        """Make a function a prompt, whose text it returns: `@runner.prompt`. Its parameters are texts."""

        def add(added: F) -> F:
            called = name or added.__name__
            if called in self._prompts:
                raise Misused(
                    f"{self.name} has two prompts called {called}", hint="give one of them another name"
                )
            self._prompts[called] = (description or inspect.getdoc(added) or "", added)
            return added

        return add if function is None else add(function)

    def run(self, argv: Sequence[str] | None = None) -> None:
        """Serve until a signal says to end. `argv` is what follows the program's name on the command line."""
        port, *others = self._ports(sys.argv[1:] if argv is None else argv)
        os.environ.setdefault(ROLE, self.role)
        log_as(self.role)
        self._note_ports(others)
        bound = self._bound(port)
        with bound:
            self._serve(bound, port)

    def _note_ports(self, ports: Sequence[int]) -> None:
        """Take note of the ports behind the first."""

    def _serve(self, bound: socket.socket, port: int) -> None:
        import asyncio

        from ratchet.agentkit.mcp_server import AgentListener, ToolFunction, offer, served
        from ratchet.agentkit.relay import take_over

        try:
            server = served(
                self.name,
                self.instructions,
                [ToolFunction(name, text, function) for name, (text, function) in self._tools.items()],
            )
            offer(server, self._resources, self._prompts)
        except Exception:
            log.exception("%s cannot be served", self.name)
            raise

        async def serve() -> None:
            await AgentListener(server, port).listen(bound, *take_over())

        log.info("%s serves %d tools at port %d", self.name, len(self._tools), port)
        asyncio.run(serve())
        log.info("%s ended", self.name)

    def _ports(self, argv: Sequence[str]) -> list[int]:
        if len(argv) != len(self.arguments):
            self._misused(f"{len(argv)} arguments were given")
        return [self._port(word) for word in argv]

    def _port(self, word: str) -> int:
        if not (word.isascii() and word.isdigit() and len(word) <= 5 and 0 < int(word) < 65536):
            self._misused(f"{word[:80]!r} is not a port")
        return int(word)

    def _misused(self, why: str) -> NoReturn:
        print(f"{why}; start it with: python {self.role}.py {' '.join(self.arguments)}", file=sys.stderr)
        raise SystemExit(2)

    def _bound(self, port: int) -> socket.socket:
        # Named as TCP, or asyncio does not switch off Nagle, and every answer waits 40 ms for an acknowledgement.
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((os.environ.get(LISTEN) or "127.0.0.1", port))
            bound.listen(_BACKLOG)
        except OSError as error:
            bound.close()
            log.error("port %d cannot be had: %s", port, error)
            print(f"port {port} cannot be had: {error}", file=sys.stderr)
            raise SystemExit(1) from error
        return bound


class Runner(_Service):
    """The server with the agent's tools: `python runner.py PORT`."""

    role = "runner"
    arguments = ("PORT",)


class Tuner(_Service):
    """The server that takes feedback: `python tuner.py PORT ARCHITECT_PORT`."""

    role = "tuner"
    arguments = ("PORT", "ARCHITECT_PORT")

    def _note_ports(self, ports: Sequence[int]) -> None:
        # Where the environment does not say where the Architect answers, the command line does.
        os.environ.setdefault(URL, f"http://127.0.0.1:{ports[0]}")
        if surroundings().token is None:
            print(
                "Ratchet has not started this Tuner: its tools work, but without a token, which Ratchet hands it in"
                " RATCHET_AGENT_TOKEN, the Architect takes nothing from it.",
                file=sys.stderr,
            )
