"""The engine itself: what it can do, and a session for each request."""

from __future__ import annotations

from ratchet.engines.answer import check_schema
from ratchet.engines.engine import Readiness
from ratchet.engines.llm.choice import candidates
from ratchet.engines.llm.conversation import Conversations
from ratchet.engines.llm.mcp_tools import mcp_is_installed
from ratchet.engines.llm.readiness import readiness
from ratchet.engines.llm.sitting import Sitting
from ratchet.engines.registry import Surroundings
from ratchet.engines.session import Capabilities, Request, Session
from ratchet.kernel import Misuse


def open_llm(surroundings: Surroundings, option: str) -> LlmEngine:
    """`option` names a model or a role, see `choice`; nothing is `llm.default`. Raises `Misuse`."""
    if option:
        candidates(option, surroundings.settings.llm, surroundings.environment)
    return LlmEngine(surroundings, option or None)


class LlmEngine:
    """Answers, and nothing else: it sees no workspace and edits no files."""

    name = "llm"

    def __init__(self, surroundings: Surroundings, choice: str | None) -> None:
        self._settings = surroundings.settings.llm
        self._environment = surroundings.environment
        self._choice = choice
        self._conversations = Conversations(
            surroundings.home / "sessions" / self.name, self._settings.resume_days
        )

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            structured_output=True,
            mcp_tools=mcp_is_installed(),
            resumable=True,
            reports_usage=True,
            own_tools=True,
        )

    async def propose(self, request: Request) -> Session:
        """See `Engine.propose`. `request.model` is read like the option that the engine was opened with."""
        if not request.prompt.strip():
            raise Misuse("the prompt is empty", hint="say what the model is to answer")
        if request.mcp_servers and not self.capabilities.mcp_tools:
            raise Misuse("MCP tools need the package mcp", hint="install it: pip install mcp")
        asked = () if request.output_schema is None else (request.output_schema,)
        for schema in (*asked, *(tool.input_schema for tool in request.tools)):
            try:
                check_schema(schema)
            except ValueError as error:
                raise Misuse(str(error)) from None
        chosen = candidates(request.model or self._choice, self._settings, self._environment)
        sitting = Sitting(self.name, request, chosen, self._settings, self._environment)
        return await sitting.run(self._conversations)

    async def check(self) -> Readiness:
        return await readiness(
            candidates(self._choice, self._settings, self._environment),
            self._environment,
            self._settings.prices,
        )
