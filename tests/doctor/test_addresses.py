from __future__ import annotations

import socket
from pathlib import Path

from ratchet.agents.addresses import announce, host_lock
from ratchet.config import Loaded, load_settings
from ratchet.doctor import addresses
from ratchet.runtime.addresses import ServerAddress, announced


def settings(home: Path, port: int) -> Loaded:
    return load_settings({"home": str(home), "agents.port": port, "server.port": port}, env={})


def test_a_free_port_is_good_and_nothing_is_made(tmp_path: Path) -> None:
    assert {check.status for check in addresses(settings(tmp_path, 0))} == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_an_asked_for_port_that_another_program_has_is_reported_with_a_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for check, name in zip(addresses(settings(tmp_path, port)), ("server", "agents"), strict=True):
            assert (check.name, check.status, str(port) in check.detail) == (name, "warn", True)
            assert f"{name}.port" in (check.fix or "")


def test_what_runs_is_named(tmp_path: Path) -> None:
    with host_lock(tmp_path) as is_ours, announced(tmp_path, ServerAddress("0.0.0.0", 2)):
        assert is_ours
        announce(tmp_path, "http://127.0.0.1:1")
        assert [check.detail for check in addresses(settings(tmp_path, 0))] == [
            "served at http://127.0.0.1:2",
            "served at http://127.0.0.1:1",
        ]
