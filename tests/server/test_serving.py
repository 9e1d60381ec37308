"""`serve`: the API and a worker, from start to a clean end."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import httpx
import pytest

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.runtime import open_runtime
from tests.postgres import PostgresServer
from tests.runtime.conftest import ended
from tests.runtime.kinds import make_kinds, marks
from tests.server.conftest import Server, Start
from tests.waiting import eventually


def enqueue(loaded: Loaded, ledger: Ledger, file: Path, seconds: float) -> int | None:
    """A job that says when it starts and ends, from a process without a worker."""
    runtime = open_runtime(loaded, ledger, make_kinds())
    with ledger.write() as tx:
        return runtime.enqueue(tx, "spell", {"file": str(file), "seconds": seconds})


@pytest.mark.soak
def test_it_serves_and_works_until_it_is_told_to_stop(
    server: Server, loaded: Loaded, ledger: Ledger, tmp_path: Path
) -> None:
    assert server.client.get("/health/ready").status_code == 200

    def processes() -> dict[str, str]:
        return {each["role"]: each["id"] for each in server.client.get("/processes").json()["items"]}

    # On a busy machine one may be given up for a moment, and enters again.
    eventually(lambda: processes().keys() == {"server", "worker"})
    job_id = enqueue(loaded, ledger, tmp_path / "marks", 0)
    assert ended(ledger, job_id).process_id == processes()["worker"]
    code, _ = server.stop()
    assert (code, "Traceback" in server.words) == (0, False), server.words
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0


@pytest.mark.soak
def test_a_running_job_finishes_while_the_api_says_that_it_drains(
    server: Server, loaded: Loaded, ledger: Ledger, tmp_path: Path
) -> None:
    job_id = enqueue(loaded, ledger, tmp_path / "marks", 10)
    eventually(lambda: bool(marks(tmp_path / "marks")))
    server.process.send_signal(signal.SIGTERM)
    eventually(lambda: server.client.get("/health/ready").status_code == 503)
    assert "the server is shutting down" in server.client.get("/health/ready").json()["reasons"]
    assert server.client.get(f"/queues/jobs/{job_id}").json()["status"] == "started"
    assert server.process.wait(120) == 0
    assert ended(ledger, job_id).result == "rested"
    assert "Traceback" not in server.words


@pytest.mark.soak
@pytest.mark.parametrize(
    ("url", "number"), [("sqlite", signal.SIGINT), ("postgresql", signal.SIGTERM)], indirect=["url"]
)
def test_a_second_signal_ends_it_at_once(
    server: Server, loaded: Loaded, ledger: Ledger, tmp_path: Path, number: signal.Signals
) -> None:
    enqueue(loaded, ledger, tmp_path / "marks", 120)
    eventually(lambda: bool(marks(tmp_path / "marks")))
    server.process.send_signal(number)
    time.sleep(0.5)
    code, seconds = server.stop(number)
    assert code == 128 + number
    # The job would have rested for two minutes.
    assert seconds < 100
    assert "Traceback" not in server.words


@pytest.mark.soak
def test_it_refuses_strangers_without_a_chosen_token(start_server: Start, tmp_path: Path) -> None:
    server = start_server(f"sqlite:///{tmp_path}/ledger.db", "server.host=0.0.0.0", wait=False)
    assert server.process.wait(30) == 2
    assert "set server.token" in server.words
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.soak
def test_a_chosen_token_opens_it_to_others_but_not_a_taken_port(start_server: Start, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    first = start_server(url, "server.host=0.0.0.0", "server.token=chosen")
    assert not (tmp_path / "token").exists()
    answer = httpx.get(f"{first.url}/runs", headers={"Authorization": "Bearer chosen"})
    assert answer.status_code == 200
    second = start_server(url, f"server.port={first.url.rpartition(':')[2]}", wait=False)
    assert second.process.wait(30) == 1
    assert "is taken" in second.words


@pytest.mark.soak
def test_a_server_at_another_port_also_finds_one_for_its_agents(start_server: Start, tmp_path: Path) -> None:
    """The port of the agents is configured for both, as in the environment of a shell, and the first has it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        server = start_server(f"sqlite:///{tmp_path}/ledger.db", f"agents.port={number}", "port=0")
        assert server.client.get("/health/ready").status_code == 200


@pytest.mark.soak
def test_it_is_healthy_again_when_the_database_is(start_server: Start) -> None:
    with PostgresServer() as database:
        server = start_server(database.create_database())
        assert server.client.get("/health").json()["status"] == "ok"
        database.stop()
        assert server.client.get("/health/live").status_code == 200
        assert server.client.get("/health").json()["reasons"] == ["the database does not answer"]
        assert server.client.get("/health/ready").status_code == 503
        assert server.client.get("/runs").status_code == 503
        assert server.client.get("/metrics").status_code == 503
        time.sleep(2)
        database.start()
        eventually(lambda: server.client.get("/health/ready").status_code == 200)
        assert server.client.get("/runs").status_code == 200
        assert server.stop()[0] == 0
        assert "a request went wrong" not in server.words


@pytest.mark.soak
def test_it_can_stop_while_the_database_is_away(start_server: Start) -> None:
    with PostgresServer() as database:
        server = start_server(database.create_database())
        database.stop()
        code, seconds = server.stop()
        assert (code, "Traceback" in server.words) == (0, False), server.words
        assert seconds < 60
