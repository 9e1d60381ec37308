"""Both ways of running foreign code, and things outside that it must not reach."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.doctor.attack import greeting

SECRET = "a secret of the outside"


@pytest.fixture(params=["node", "command"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    return file


@pytest.fixture
def listener() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server, greeting(server, SECRET):
        yield server.getsockname()


@pytest.fixture
def abstract_listener() -> Iterator[str]:
    name = f"ratchet-test-{os.getpid()}-{threading.get_ident()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        with greeting(server, SECRET):
            yield name
