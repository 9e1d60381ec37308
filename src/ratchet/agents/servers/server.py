"""A server while it runs."""

from __future__ import annotations

from ratchet.agents.contract import Role, ToolShape
from ratchet.agents.servers.calling import list_tools
from ratchet.agents.servers.failure import NoAnswer
from ratchet.agents.servers.process import Ended, Process


class Server:
    """One of a version's two servers, which answers at `url` on this machine. `tools` are those it listed at first."""

    def __init__(self, process: Process, tools: tuple[ToolShape, ...]) -> None:
        self._process = process
        self.tools = tools

    @property
    def role(self) -> Role:
        return self._process.role

    @property
    def port(self) -> int:
        return self._process.port

    @property
    def url(self) -> str:
        return self._process.url

    @property
    def log(self) -> str:
        """The end of what it printed."""
        return self._process.printed.tail

    async def ended(self) -> str:
        """Wait until it ends; why it did."""
        return await self._process.ended()

    async def problem(self, seconds: float) -> str | None:
        """What is wrong with it, if anything: it has ended, or does not list its tools within `seconds`."""
        try:
            await self._process.while_it_runs(list_tools(self.url, seconds))
        except (Ended, NoAnswer) as error:
            return str(error)
        return None
