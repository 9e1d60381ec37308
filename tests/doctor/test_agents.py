from __future__ import annotations

import socket
from pathlib import Path

from ratchet.agents.seat import announce, seat
from ratchet.config import Loaded, load_settings
from ratchet.doctor import agents


def settings(home: Path, port: int) -> Loaded:
    return load_settings({"home": str(home), "agents.port": port}, env={})


def test_a_free_port_is_good_and_nothing_is_made(tmp_path: Path) -> None:
    [check] = agents(settings(tmp_path, 0))
    assert check.status == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_another_program_has_is_told_with_a_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        [check] = agents(settings(tmp_path, port))
    assert (check.status, str(port) in check.detail) == ("warn", True)
    assert "agents.port" in (check.mend or "")


def test_a_running_host_is_named(tmp_path: Path) -> None:
    with seat(tmp_path) as is_ours:
        assert is_ours
        announce(tmp_path, "http://127.0.0.1:1")
        assert agents(settings(tmp_path, 0))[0].detail == "served at http://127.0.0.1:1"
