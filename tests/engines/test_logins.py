"""Logins of agent programs with an account, used where they are."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import Request, SessionFailed
from ratchet.engines.registry import claude_login, codex_login
from ratchet.modelserver import ModelServer, call, say
from tests.engines.conftest import Place
from tests.engines.contract import propose


def token(seconds: float) -> str:
    """A JSON Web Token that ends in so many seconds."""
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int(time.time() + seconds)}).encode())
    return f"eyJhbGciOiJub25lIn0.{claims.decode().rstrip('=')}.signature"


def write(file: Path, document: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document))
    return file


def codex_file(home: Path, access: str) -> Path:
    tokens = {"access_token": access, "refresh_token": "r", "id_token": "i", "account_id": "account-7"}
    return write(home / ".codex" / "auth.json", {"OPENAI_API_KEY": None, "tokens": tokens})


def claude_file(home: Path, access: str, seconds: float = 3600) -> Path:
    login = {"accessToken": access, "refreshToken": "r", "expiresAt": int((time.time() + seconds) * 1000)}
    return write(home / ".claude" / ".credentials.json", {"claudeAiOauth": login})


def test_codex_uses_its_login_in_place_and_its_commands_cannot_read_it(
    place: Place, model_server: ModelServer, workspace: Path, tmp_path: Path
) -> None:
    access = token(3600)
    file = codex_file(tmp_path, access)
    before = file.read_bytes()
    script = model_server.script(
        "codex-login", [call("exec_command", cmd=f"cat {file}; env | grep RATCHET"), say("done")]
    )
    toml = f'[engines.codex]\nlogin_url = "{model_server.openai_url("codex-login")}"\nmodel = "gpt-5.5"\n'
    engine = place.open("codex", toml, {"HOME": str(tmp_path)})
    assert f"with the login in {file}" in asyncio.run(engine.check()).detail
    session = propose(engine, Request("Work.", workspace))
    assert session.text == "done"
    seen = script.requests[0]
    assert (seen.headers["authorization"], seen.headers["chatgpt-account-id"]) == (
        f"Bearer {access}",
        "account-7",
    )
    assert access not in json.dumps(script.requests[1].body)
    assert access not in session.transcript.decode()
    assert file.read_bytes() == before
    kept = [path for path in place.home.rglob("*") if path.is_file()]
    assert not [path for path in kept if access.encode() in path.read_bytes()]


def test_claude_uses_its_login_in_place_and_its_commands_cannot_read_it(
    place: Place, model_server: ModelServer, workspace: Path, tmp_path: Path
) -> None:
    access = "sk-ant-oat01-of-a-subscription"
    file = claude_file(tmp_path, access)
    before = file.read_bytes()
    script = model_server.script("claude-login", [call("Bash", command=f"cat {file}"), say("done")])
    toml = f'[llm.endpoints.anthropic]\nbase_url = "{model_server.anthropic_url("claude-login")}"\n'
    engine = place.open("claude:claude-scripted", toml, {"HOME": str(tmp_path)})
    assert f"with the login in {file}" in asyncio.run(engine.check()).detail
    session = propose(engine, Request("Work.", workspace))
    assert session.text == "done"
    assert script.requests[0].headers["authorization"] == f"Bearer {access}"
    assert access not in json.dumps(script.requests[1].body)
    assert access not in session.transcript.decode()
    assert file.read_bytes() == before


@pytest.mark.parametrize("engine", ["codex", "claude"])
def test_a_login_that_has_expired_says_how_to_renew_it(place: Place, tmp_path: Path, engine: str) -> None:
    codex_file(tmp_path, token(-10))
    claude_file(tmp_path, "sk-ant-oat01-old", -10)
    with pytest.raises(SessionFailed, match="has expired") as caught:
        propose(place.open(engine, "", {"HOME": str(tmp_path)}), Request("Work."))
    assert f"`ratchet engine login {engine}`" in str(caught.value.hint)


def test_a_key_is_stronger_than_a_login(place: Place, model_server: ModelServer, tmp_path: Path) -> None:
    codex_file(tmp_path, token(3600))
    model_server.script("a-key", [])
    toml = f'[llm.endpoints.openai]\nbase_url = "{model_server.openai_url("a-key")}"\n'
    engine = place.open("codex", toml, {"HOME": str(tmp_path), "OPENAI_API_KEY": "sk-of-the-api"})
    assert "with the key in OPENAI_API_KEY" in asyncio.run(engine.check()).detail


def test_a_file_that_is_no_login_is_none(tmp_path: Path) -> None:
    around = {"HOME": str(tmp_path)}
    assert (codex_login(around), claude_login(around)) == (None, None)
    write(tmp_path / ".codex" / "auth.json", {"tokens": None})
    write(tmp_path / ".claude" / ".credentials.json", [])
    assert (codex_login(around), claude_login(around)) == (None, None)
    found = codex_login(
        {"CODEX_HOME": str(write(tmp_path / "c" / "auth.json", {"OPENAI_API_KEY": "sk-x"}).parent)}
    )
    assert found is not None
    assert (found.token, found.is_key, "sk-x" in repr(found)) == ("sk-x", True, False)
