"""The API in this process for most tests; real servers in processes of their own for the rest."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.runtime import Runtime, Worker
from ratchet.server.app import create_app

# The same prepared databases that the runtime's tests use.
from tests.runtime.conftest import (  # noqa: F401
    ledger,
    loaded,
    runtime,
    url,
    worker,
)
from tests.waiting import eventually

REPOSITORY = Path(__file__).parents[2]
TOKEN = "a-token-for-tests"


def client_of(
    opened: Runtime, settings: Loaded, beside: Worker | None = None, *, token: str | None = TOKEN
) -> TestClient:
    process_id = None if beside is None else beside.process_id
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return TestClient(create_app(opened, settings, TOKEN, process_id=process_id), headers=headers)


@pytest.fixture
def api(runtime: Runtime, loaded: Loaded) -> TestClient:  # noqa: F811
    """The API with no worker beside it, as one who holds the token sees it."""
    return client_of(runtime, loaded)


@pytest.fixture
def working_api(worker: Worker, loaded: Loaded) -> TestClient:  # noqa: F811
    """The API with a worker in the same process."""
    return client_of(worker.runtime, loaded, worker)


@contextmanager
def listening_to(client: TestClient) -> Iterator[httpx.Client]:
    """The same API behind a real uvicorn, in a thread: streams never end in the test client."""
    http = uvicorn.Server(uvicorn.Config(client.app, port=0, lifespan="off", log_config=None))
    thread = threading.Thread(target=http.run)
    thread.start()
    eventually(lambda: http.started)
    port = http.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=client.headers, timeout=120) as opened:
        yield opened
    http.should_exit = True
    thread.join()


@pytest.fixture
def live(api: TestClient) -> Iterator[httpx.Client]:
    with listening_to(api) as client:
        yield client


class Server:
    """`serve` in a process of its own."""

    def __init__(self, home: Path, url: str, *pairs: str) -> None:  # noqa: F811
        self.home = home
        self.log = home / f"server-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "tests.server.server_process", str(home), url, *pairs]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._client: httpx.Client | None = None

    def wait_until_ready(self) -> Server:
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http"), self.words
        return self

    @property
    def words(self) -> str:
        """What it has said so far."""
        return self.log.read_text()

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    @property
    def client(self) -> httpx.Client:
        if self._client is None:
            headers = {"Authorization": f"Bearer {self.token}"}
            self._client = httpx.Client(base_url=self.url, headers=headers, timeout=120)
        return self._client

    def pid(self, role: str) -> int:
        """The process of that role which is alive now."""
        found = self.client.get("/processes").json()["items"]
        return next(each["pid"] for each in found if each["role"] == role)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Tell it to stop; its exit code, and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(120), time.monotonic() - began

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


Start = Callable[..., Server]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Start]:
    """Start servers: `start_server(url, "key=value", …)`. They end with the test."""
    started: list[Server] = []

    def start(database: str, *pairs: str, wait: bool = True) -> Server:
        server = Server(tmp_path, database, *pairs)
        started.append(server)
        return server.wait_until_ready() if wait else server

    yield start
    for server in started:
        server.close()


@pytest.fixture
def server(start_server: Start, url: str) -> Server:  # noqa: F811
    return start_server(url)
