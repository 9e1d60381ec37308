"""docs/mcp.md tells of everything, and its commands and snippets are what real clients take."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import codex_cli_bin
import pytest
from claude_agent_sdk import __file__ as claude_package
from mcp import Client

from ratchet.cli.commands.serve import mcp
from ratchet.server.mcp.face import ACTING
from ratchet.server.mcp.server import PATH
from ratchet.server.mcp.tool import Declared
from tests.server.mcp.conftest import World

GUIDE = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text()
ARGUMENTS = ["--home", "/path/to/.ratchet", "mcp"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def rows() -> dict[str, list[str]]:
    """The tables of tools: what each row says behind the name."""
    lines = [line.strip("| ").split(" | ") for line in GUIDE.splitlines() if re.match(r"\| `\w+` \|", line)]
    return {name.strip("`"): rest for name, *rest in lines}


def hints(tool: Declared) -> str:
    said = {"destructive": tool.destructive, "repeatable": tool.repeatable, "queues work": tool.queues}
    return ", ".join(name for name, holds in said.items() if holds)


def test_the_tables_are_the_tools(world: World) -> None:
    async def listed(client: Client) -> dict[str, str]:
        return {tool.name: str(tool.description) for tool in (await client.list_tools()).tools}

    tools = world.use(listed, allow_actions=True)
    told = rows()
    assert list(told) == [*(name for name in tools if name not in acting()), *acting()]
    assert [name for name, text in tools.items() if not text.startswith(told[name][0] + " Texts in")] == []
    assert [each.name for each in ACTING if (*told[each.name], "")[1].strip("| ") != hints(each)] == []


def acting() -> list[str]:
    return [each.name for each in ACTING]


@pytest.mark.soak
def test_the_addresses_in_it_are_resources(world: World) -> None:
    async def templates(client: Client) -> set[str]:
        found = (await client.list_resource_templates()).resource_templates
        return {each.uri_template.partition("{?")[0] for each in found}

    known = world.use(templates)
    assert [
        uri for uri in re.findall(r"^\| `(ratchet://[^`]+)`", GUIDE, re.MULTILINE) if uri not in known
    ] == []


def test_every_option_of_the_command_is_told() -> None:
    options = {name for each in mcp.params if isinstance(each, click.Option) for name in each.opts}
    assert options <= set(re.findall(r"--[\w-]+", GUIDE))


def test_its_commands_are_ones_that_ratchet_takes() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    own = [shlex.split(line)[2:] for line in lines if line.startswith("ratchet mcp")]
    assert len(own) == 2
    for words in own:
        mcp.make_context("mcp", words, resilient_parsing=True)
    assert [
        line for line in lines if not line.startswith(("ratchet mcp", "codex mcp add", "claude mcp add"))
    ] == []


def test_its_snippets_name_the_same_server_for_all_clients() -> None:
    servers = [tomllib.loads(block)["mcp_servers"]["ratchet"] for block in blocks("toml")]
    servers += [json.loads(block)["mcpServers"]["ratchet"] for block in blocks("json")]
    by_stdio = [each for each in servers if "command" in each]
    assert [(each["command"], each["args"]) for each in by_stdio] == [("ratchet", ARGUMENTS)] * 2
    port = next(each for each in mcp.params if each.name == "port")
    assert isinstance(port, click.Option)
    by_http = [each["url"] for each in servers if "url" in each]
    assert by_http == [f"http://127.0.0.1:8126{PATH}"] * 2
    assert "8126" in str(port.help)


@pytest.mark.soak
@pytest.mark.parametrize("client", ["codex", "claude"])
def test_the_commands_for_clients_are_ones_that_they_take(client: str, tmp_path: Path) -> None:
    bundled = Path(claude_package).parent / "_bundled" / "claude"
    program = {"codex": str(codex_cli_bin.bundled_codex_path()), "claude": str(bundled)}[client]
    (line,) = [line for block in blocks("sh") for line in block.splitlines() if line.startswith(client)]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path)}
    subprocess.run(
        [program, *shlex.split(line)[1:]],
        cwd=tmp_path,
        env={**env, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=True,
    )
    kept: dict[str, Any]
    if client == "codex":
        kept = tomllib.loads((tmp_path / "config.toml").read_text())["mcp_servers"]["ratchet"]
    else:
        projects = json.loads((tmp_path / ".claude.json").read_text())["projects"]
        kept = projects[str(tmp_path)]["mcpServers"]["ratchet"]
    assert (kept["command"], kept["args"]) == ("ratchet", ARGUMENTS)
