"""What Prometheus is told: the sums of all processes, each counted once."""

from __future__ import annotations

import socket

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from ratchet.ledger import Ledger
from ratchet.ledger.agents import add_version, create_agent
from ratchet.ledger.production import count_calls
from ratchet.ledger.runs import create_run
from ratchet.ledger.tables import processes
from ratchet.observe.metrics import exposition
from ratchet.runtime import Worker, list_processes
from ratchet.runtime.processes import ProcessFacts, beat, register
from tests.server.conftest import Server, Start
from tests.waiting import eventually


def value(text: str, name: str, **labels: str) -> float:
    """The sum of the samples with this name that have these labels; there must be one."""
    found = samples(text, name, **labels)
    assert found, (name, labels)
    return sum(found)


def samples(text: str, name: str, **labels: str) -> list[float]:
    return [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


def requests(text: str) -> float:
    return sum(samples(text, "ratchet_http_requests_total", route="/runs/{run_id}", status="404"))


def test_it_is_prometheus_text_for_anybody(api: TestClient) -> None:
    answer = api.get("/metrics", headers={"Authorization": ""})
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert list(text_string_to_metric_families(answer.text))


def test_calls_of_agents_are_counted_by_version_and_tool(api: TestClient, ledger: Ledger) -> None:
    called = {"commit": "a" * 40, "server": "runner", "tool": "greet", "milliseconds": 20}
    with ledger.write() as tx:
        agent = create_agent(tx, "greeter", "greets")
        add_version(tx, agent, "a" * 40, "0.1.0", parent=None, summary="first", tools=[], run_id=None)
        count_calls(tx, agent.id, [{**called, "outcome": each} for each in ("ok", "ok", "failed")])
    text = api.get("/metrics").text
    labels = {"agent": "greeter", "version": "0.1.0"}
    assert value(text, "ratchet_agent_calls_total", **labels, tool="greet", outcome="ok") == 2
    assert value(text, "ratchet_agent_calls_total", **labels, tool="greet", outcome="failed") == 1
    assert value(text, "ratchet_agent_call_seconds_bucket", **labels, le="0.01") == 0
    assert value(text, "ratchet_agent_call_seconds_bucket", **labels, le="0.025") == 3
    assert value(text, "ratchet_agent_call_seconds_count", **labels) == 3


def test_nodes_are_counted_with_their_slots_and_what_their_cluster_gave_out(
    api: TestClient, ledger: Ledger
) -> None:
    row = {
        "id": "ab" * 8,
        "name": "10.0.0.7",
        "cpus": 8.0,
        "cpus_used": 3.0,
        "gpus": ["A100"],
        "memory_bytes": 1,
    }
    facts = ProcessFacts(cpus=4, gpus=("T4", "T4"), placement="ray 10.0.0.5:6379", nodes=(row,))
    with ledger.write() as tx:
        register(tx, "one", "worker", 2, facts)
        register(tx, "two", "server", 0, facts)
        beat(tx, "one", busy=1, draining=False, snapshot=None)
        # However long the test takes from here, both have been heard of.
        tx.connection.execute(sa.update(processes).values(beat_at=tx.now + 3_600_000))
    text = api.get("/metrics").text
    here = {"kind": "machine", "node": socket.gethostname()}
    for name, expected in {"up": 1, "cpus": 4, "gpus": 2, "slots": 2, "slots_busy": 1}.items():
        assert value(text, f"ratchet_node_{name}", **here) == expected
    assert value(text, "ratchet_node_processes", **here, role="server") == 1
    there = {"kind": "ray", "node": "10.0.0.7 (abababab)"}
    assert value(text, "ratchet_node_cpus_used", **there) == 3
    assert samples(text, "ratchet_node_slots", **there) == []


@pytest.mark.soak
def test_the_ledger_is_measured(working_api: TestClient, ledger: Ledger, worker: Worker) -> None:
    with ledger.write() as tx:
        create_run(tx, "workflow", "w")
        worker.runtime.enqueue(tx, "note", delay_seconds=3600)
    text = working_api.get("/metrics").text
    assert value(text, "ratchet_runs", status="pending") == 1
    assert value(text, "ratchet_runs", status="running") == 0
    assert value(text, "ratchet_jobs", queue="default", status="scheduled") == 1
    assert value(text, "ratchet_processes_alive") == 1
    newest = working_api.get("/events?limit=1").json()[0]["id"]
    assert value(working_api.get("/metrics").text, "ratchet_newest_event_id") == newest


@pytest.mark.soak
def test_a_path_is_counted_by_its_template_and_a_method_by_its_name(api: TestClient) -> None:
    for number in range(901, 905):
        api.get(f"/runs/{number}")
        api.get(f"/nowhere/{number}")
        api.request(f"METHOD{number}", "/runs")
    text = api.get("/metrics").text
    assert requests(text) >= 4
    assert value(text, "ratchet_http_requests_total", route="none", status="404") >= 4
    assert value(text, "ratchet_http_requests_total", method="other") >= 4
    assert "/runs/90" not in text
    assert "METHOD" not in text


@pytest.mark.soak
def test_what_this_process_stored_with_its_heartbeat_is_not_counted_twice(
    working_api: TestClient, worker: Worker, ledger: Ledger
) -> None:
    for number in range(901, 911):
        working_api.get(f"/runs/{number}")
    counted = requests(working_api.get("/metrics").text)
    eventually(lambda: stored(ledger) == counted)
    assert requests(working_api.get("/metrics").text) == counted


def stored(ledger: Ledger) -> float:
    """The count that the one process there is stored last."""
    with ledger.read() as tx:
        [process] = list_processes(tx)
    return requests(exposition(process.metrics).decode())


@pytest.mark.soak
def test_two_servers_on_one_database_both_answer_and_their_counts_add_up(
    start_server: Start, url: str
) -> None:
    servers: list[Server] = [start_server(url), start_server(url)]
    for number, server in enumerate(servers):
        for _ in range(3 + number):
            assert server.client.get("/runs/999").status_code == 404
        roles = [each["role"] for each in server.client.get("/processes").json()["items"]]
        assert sorted(roles) == ["server", "server", "worker", "worker"]
        assert server.client.get("/health/ready").status_code == 200
    eventually(lambda: all(requests(server.client.get("/metrics").text) == 7 for server in servers))
    assert servers[0].stop()[0] == 0
    eventually(lambda: requests(servers[1].client.get("/metrics").text) == 7)
