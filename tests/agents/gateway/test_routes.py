"""Which targets are addresses."""

from __future__ import annotations

import pytest

from ratchet.agents.contract import Role
from ratchet.agents.gateway import AgentRoute
from ratchet.agents.gateway.routes import ARCHITECT, route_of


@pytest.mark.parametrize(
    ("target", "route"),
    [
        (b"/agents/echo/runner/mcp", AgentRoute("echo", Role.RUNNER, None)),
        (b"/agents/echo/tuner/mcp", AgentRoute("echo", Role.TUNER, None)),
        (b"/agents/a.b_c-9/runner/mcp", AgentRoute("a.b_c-9", Role.RUNNER, None)),
        (b"/agents/echo@latest/runner/mcp", AgentRoute("echo", Role.RUNNER, "latest")),
        (b"/agents/echo@v0.1.0/tuner/mcp", AgentRoute("echo", Role.TUNER, "v0.1.0")),
        (b"/agents/echo@%b/runner/mcp" % (b"0a" * 20), AgentRoute("echo", Role.RUNNER, "0a" * 20)),
        (b"/architect/mcp", ARCHITECT),
    ],
)
def test_an_address_names_an_agent_a_role_and_a_version(target: bytes, route: object) -> None:
    assert route_of(target) == route


@pytest.mark.parametrize(
    "target",
    [
        b"/",
        b"*",
        b"/agents",
        b"/agents/echo/mcp",
        b"/agents/echo/runner",
        b"/agents/echo/runner/",
        b"/agents/echo/runner/mcp/",
        b"/agents/echo/runner/mcp?x=1",
        b"/agents/echo/runner/mcp#x",
        b"/agents/echo/runner/mcp\n",
        b"/agents/echo/judge/mcp",
        b"/agents/Echo/runner/mcp",
        b"/agents/architect/runner/mcp",
        b"/agents/.echo/runner/mcp",
        b"/agents/echo-/runner/mcp",
        b"/agents/%s/runner/mcp" % (b"e" * 65),
        b"/agents/ech%6f/runner/mcp",
        b"/agents//echo/runner/mcp",
        b"//agents/echo/runner/mcp",
        b"/agents/../agents/echo/runner/mcp",
        b"/agents/./runner/mcp",
        b"/agents/../runner/mcp",
        b"/agents/a..b/runner/mcp",
        b"/agents/echo@/runner/mcp",
        b"/agents/echo@../runner/mcp",
        b"/agents/echo@1..2/runner/mcp",
        b"/agents/echo@-x/runner/mcp",
        b"/agents/echo@a@b/runner/mcp",
        b"/agents/echo@%s/runner/mcp" % (b"a" * 65),
        b"/agents/echo@a/b/runner/mcp",
        b"/agents/\xe9cho/runner/mcp",
        b"/agents/\xd9\xa1/runner/mcp",
        b"http://127.0.0.1/agents/echo/runner/mcp",
        b"/architect/mcp/",
        b"/architect",
        b"/architect@latest/mcp",
    ],
)
def test_whatever_is_spelled_otherwise_is_no_address(target: bytes) -> None:
    assert route_of(target) is None
