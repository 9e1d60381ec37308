"""Settings: each with its value, its default and where it came from, and never a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from ratchet.config import load_settings
from ratchet.runtime import Runtime
from ratchet.server.app import create_app
from tests.server.conftest import TOKEN
from tests.server.console.visitor import Visitor

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)
SECRET = "a-configured-token-of-this-server"


def test_every_setting_is_shown_with_its_source(runtime: Runtime, url: str, tmp_path: Path) -> None:
    (tmp_path / "ratchet.toml").write_text("[budgets]\npolicy = 'warn'\n")
    loaded = load_settings(
        {"home": str(tmp_path), "database_url": url, "server.token": SECRET},
        env={"RATCHET_SERVER__PORT": "9000"},
        cwd=tmp_path,
    )
    client = TestClient(create_app(runtime, loaded, TOKEN), headers={"Accept": "text/html"})
    client.get(f"/console/enter?token={TOKEN}")
    twin = client.get("/console/settings?format=json")
    found = {each["key"]: each for table in twin.json()["tables"] for each in table["settings"]}
    chosen = {key: (each["value"], each["default"], each["source"]) for key, each in found.items()}
    assert chosen["server.port"] == (9000, 8484, "environment")
    assert chosen["budgets.policy"] == ("warn", "strict", "file")
    assert chosen["server.token"] == ("********", None, "flag")
    assert chosen["log.level"] == ("info", "info", "default")
    assert all(each["description"] for each in found.values())
    assert {origin.key for origin in loaded.explain()} == {"home", *found}
    for answer in (twin, client.get("/console/settings")):
        assert SECRET not in answer.text
        assert TOKEN not in answer.text


@pytest.mark.soak
def test_settings_are_searched(visitor: Visitor) -> None:
    page = visitor.open("/settings")
    assert page.get_by_role("heading", name="Ledger").is_visible()
    visitor.check()
    page.keyboard.press("/")
    page.keyboard.type("heartbeat")
    page.keyboard.press("Enter")
    page.wait_for_url("**/settings?search=heartbeat*")
    assert page.get_by_text("runtime.heartbeat_seconds").is_visible()
    assert not page.get_by_text("budgets.policy").is_visible()
    visitor.phone()
    visitor.open("/settings?search=%3Cb%3Enone").get_by_text("No such setting").wait_for()
    visitor.check()
