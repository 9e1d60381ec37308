"""What callers rely on besides tools: resources, prompts and the Tuner decide the number as tools do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ratchet.agents.versions import changes_since, to_json
from ratchet.kernel import Outcome
from ratchet.kernel.semver import Bump
from ratchet.ledger.agents import AgentVersion, VersionStatus
from tests.agents.checks.conftest import Check, sections

RUNNER = '''"""A Runner by the official library."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("greeter")


@server.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello, {name}"


@server.resource("memo://greeting")
def greeting() -> str:
    """How people are greeted."""
    return "hello"


@server.prompt()
def introduce(name: str) -> str:
    """Ask for an introduction."""
    return f"Who is {name}?"


server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
'''


def test_a_resource_or_a_prompt_that_is_gone_or_narrower_is_no_patch(check: Check, agent: Path) -> None:
    (agent / "runner.py").write_text(RUNNER)
    (agent / "tests.py").unlink()
    checked = check(agent)
    assert checked.judged.verdict.outcome is Outcome.PASSED, checked.judged.verdict.reason
    names = ["tuner feedback", "resource memo://greeting", "prompt introduce"]
    assert [each.name for each in checked.surface.offers] == names == sections(checked)["start-up"]["offers"]

    tools, offers = to_json(checked.tools), to_json(checked.surface.offers)
    old = AgentVersion(
        1, 1, "c", "0.0.0", None, VersionStatus.READY, None, "", tools, None, False, 0, 0, offers
    )
    assert changes_since(old, tools, offers).least is Bump.PATCH
    for name in names:
        less = [each for each in offers if each["name"] != name]
        assert (changes_since(old, tools, less).removed, changes_since(old, tools, less).least) == (
            (name,),
            Bump.MAJOR,
        )
        assert changes_since(dataclasses.replace(old, offers=less), tools, offers).least is Bump.MINOR
    [prompt] = [each for each in offers if each["name"] == "prompt introduce"]
    asks_more = {"properties": {"name": {"type": "string"}, "tone": {"type": "string"}}}
    narrower = {
        **prompt,
        "input_schema": {**prompt["input_schema"], **asks_more, "required": ["name", "tone"]},
    }
    assert changes_since(old, tools, [*offers[:2], narrower]).changed == ("prompt introduce",)
