"""What Codex is told, and what it is not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ratchet.config.engine_settings import Codex
from ratchet.engines import McpServer, Request
from ratchet.engines.codex.configuration import CodexAccess, SessionFiles, write_files
from ratchet.engines.endpoint import HiddenKeys, SettingNames
from ratchet.kernel import Misuse

NAMES = SettingNames("OPENAI_API_KEY", "engines.codex", "engines.codex.model")
AROUND = {
    "PATH": "/here:/there",
    "OPENAI_API_KEY": "key-1234567",
    "HTTPS_PROXY": "http://proxy:3128",
    "JAVA_HOME": "/opt/java",
    "AWS_SECRET_ACCESS_KEY": "not for you",
}


def told(
    tmp_path: Path, settings: Codex | None = None, request: Request | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    home = tmp_path / "session"
    home.mkdir()
    settings, request = settings or Codex(), request or Request("x")
    variables = write_files(
        SessionFiles(home), CodexAccess(settings, "a-model", AROUND, HiddenKeys(()), NAMES), request, tmp_path
    )
    return tomllib.loads((home / "config.toml").read_text()), variables


def test_its_environment_holds_only_what_it_needs(tmp_path: Path) -> None:
    _, variables = told(tmp_path)
    session = str(tmp_path / "session")
    assert variables == {
        "PATH": "/here:/there",
        "LANG": "C.UTF-8",
        "HOME": session,
        "CODEX_HOME": session,
        "TMPDIR": f"{session}/scratch",
        "OPENAI_API_KEY": "key-1234567",
        "HTTPS_PROXY": "http://proxy:3128",
    }


def test_the_key_is_named_but_not_written(tmp_path: Path) -> None:
    tables, _ = told(tmp_path)
    assert tables["model_providers"]["ratchet"]["env_key"] == "OPENAI_API_KEY"
    assert "key-1234567" not in (tmp_path / "session" / "config.toml").read_text()


def test_commands_get_a_home_of_their_own_and_only_named_variables(tmp_path: Path) -> None:
    tables, _ = told(tmp_path, Codex(environment=("JAVA_HOME", "NOT_SET")))
    policy = tables["shell_environment_policy"]
    assert (policy["inherit"], policy["ignore_default_excludes"]) == ("core", False)
    assert policy["set"] == {
        "HOME": str(tmp_path / "session" / "scratch"),
        "LANG": "C.UTF-8",
        "JAVA_HOME": "/opt/java",
    }


def test_the_variable_of_the_key_cannot_be_given_to_commands() -> None:
    with pytest.raises(ValueError, match="must not name OPENAI_API_KEY"):
        Codex(environment=("OPENAI_API_KEY",))


def test_everything_that_calls_home_is_off(tmp_path: Path) -> None:
    tables, _ = told(tmp_path)
    assert not tables["analytics"]["enabled"]
    assert not any(tables["features"].values())
    assert {"plugins", "apps", "unbounded_connection_retries"} <= tables["features"].keys()
    assert tables["web_search"] == "disabled"


def test_sandbox_and_approval_are_said_explicitly(tmp_path: Path) -> None:
    tables, _ = told(tmp_path, Codex(network=True))
    assert (tables["sandbox_mode"], tables["approval_policy"]) == ("workspace-write", "never")
    assert tables["sandbox_workspace_write"] == {"network_access": True, "exclude_slash_tmp": True}


def test_only_one_of_the_two_retries_that_multiply_is_used(tmp_path: Path) -> None:
    provider = told(tmp_path, Codex(retries=7, idle_seconds=1.5))[0]["model_providers"]["ratchet"]
    assert (provider["request_max_retries"], provider["stream_max_retries"]) == (0, 7)
    assert provider["stream_idle_timeout_ms"] == 1500


def test_mcp_servers_are_required_and_approved_beforehand(tmp_path: Path) -> None:
    servers = (
        McpServer("near", argv=("python", "server.py"), environment={"LAB_TOKEN": "secret-77"}),
        McpServer("far", url="http://127.0.0.1:1/mcp"),
    )
    tables, variables = told(tmp_path, request=Request("x", mcp_servers=servers))
    for table in tables["mcp_servers"].values():
        assert (table["required"], table["default_tools_approval_mode"]) == (True, "approve")
    assert tables["mcp_servers"]["near"]["env_vars"] == ["LAB_TOKEN"]
    assert variables["LAB_TOKEN"] == "secret-77"
    assert "secret-77" not in (tmp_path / "session" / "config.toml").read_text()


@pytest.mark.parametrize(
    "server",
    [
        McpServer("a b", url="http://x"),
        McpServer("a.b", url="http://x"),
        McpServer("", url="http://x"),
        McpServer("thief", argv=("x",), environment={"OPENAI_API_KEY": "mine"}),
    ],
)
def test_a_server_that_codex_cannot_be_given_is_refused(tmp_path: Path, server: McpServer) -> None:
    with pytest.raises(Misuse):
        told(tmp_path, request=Request("x", mcp_servers=(server,)))


@pytest.mark.parametrize("text", ['"', "'''", "\\", "a\nb", "\x7f\x01", "ü 🛠", "[x]\ny = 1", "\ud800"])
def test_no_text_breaks_out_of_its_value(tmp_path: Path, text: str) -> None:
    tables, _ = told(tmp_path, request=Request("x", system=f"begin {text} end"))
    written = text.encode(errors="replace").decode()
    assert tables["developer_instructions"].endswith(f"begin {written} end")
    assert "y" not in tables


def test_agents_md_is_read_but_not_through_a_link(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("WHISTLE")
    (tmp_path / "AGENTS.md").symlink_to(secret)
    assert "WHISTLE" not in told(tmp_path)[0]["developer_instructions"]
