"""Counts of many processes become one page that Prometheus can read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ratchet.observe import metrics
from ratchet.observe.metrics import Gauge

WORKER = """
import json, sys
from ratchet.observe import metrics
jobs, route = int(sys.argv[1]), sys.argv[2]
for number in range(jobs):
    metrics.jobs_finished.labels("trial", "completed").inc()
    metrics.job_seconds.labels("trial").observe(number)
    metrics.job_wait_seconds.observe(0.03)
metrics.http_requests.labels("GET", route, "200").inc()
metrics.http_request_seconds.labels("GET", route).observe(0.002)
metrics.events_appended.inc(10 * jobs)
metrics.transitions.labels("run", "running").inc()
print(json.dumps(metrics.snapshot()))
"""
ODD_ROUTE = 'a"b\\c\nd,le="5'


def spawned(jobs: int, route: str = "/runs") -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", WORKER, str(jobs), route], capture_output=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def values(page: bytes, name: str, labels: dict[str, str] | None = None) -> list[float]:
    return [
        sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if sample.name == name and (labels is None or labels.items() <= sample.labels.items())
    ]


def page_of(snapshots: Iterable[dict[str, float]], *gauges: Gauge) -> bytes:
    return metrics.exposition(metrics.merge(snapshots), gauges)


@pytest.mark.soak
def test_the_counts_of_two_processes_add_up() -> None:
    page = page_of([spawned(3), spawned(4)])
    finished = {"kind": "trial", "outcome": "completed"}
    assert values(page, "ratchet_jobs_finished_total", finished) == [7]
    assert values(page, "ratchet_events_appended_total") == [70]
    assert values(page, "ratchet_transitions_total", {"entity": "run", "to": "running"}) == [2]
    assert values(page, "ratchet_http_requests_total", {"route": "/runs", "status": "200"}) == [2]
    assert values(page, "ratchet_job_wait_seconds_count") == [7]
    assert values(page, "ratchet_job_seconds_sum") == [0 + 1 + 2 + 0 + 1 + 2 + 3]
    assert values(page, "ratchet_job_seconds_bucket", {"le": "1.0"}) == [4]


def test_every_family_has_its_help_and_type() -> None:
    families = {each.name: each for each in text_string_to_metric_families(page_of([spawned(1)]).decode())}
    assert {name: each.type for name, each in families.items()} == {
        "ratchet_jobs_finished": "counter",
        "ratchet_job_seconds": "histogram",
        "ratchet_job_wait_seconds": "histogram",
        "ratchet_http_requests": "counter",
        "ratchet_http_request_seconds": "histogram",
        "ratchet_events_appended": "counter",
        "ratchet_transitions": "counter",
        "ratchet_webhooks": "counter",
    }
    assert all(each.documentation for each in families.values())


def test_buckets_rise_even_when_the_database_reordered_the_keys() -> None:
    taken = spawned(3)
    shuffled = {key: taken[key] for key in sorted(taken, reverse=True)}
    text = page_of([shuffled]).decode()
    buckets = [line for line in text.splitlines() if line.startswith("ratchet_job_seconds_bucket")]
    counts = [float(line.rpartition(" ")[2]) for line in buckets]
    assert counts == sorted(counts)
    assert 'le="+Inf"' in buckets[-1]


def test_odd_labels_survive() -> None:
    page = page_of([spawned(1, ODD_ROUTE), spawned(1, ODD_ROUTE)])
    assert values(page, "ratchet_http_requests_total", {"route": ODD_ROUTE}) == [2]
    assert values(page, "ratchet_http_request_seconds_count", {"route": ODD_ROUTE}) == [2]


def test_gauges_of_one_name_make_one_family() -> None:
    page = page_of(
        [],
        Gauge("queue_length", "Jobs waiting.", 3, {"queue": "default"}),
        Gauge("queue_length", "Jobs waiting.", 5, {"queue": 'g"pu'}),
        Gauge("workers", "Living workers.", 2),
    )
    assert values(page, "ratchet_queue_length", {"queue": 'g"pu'}) == [5]
    assert values(page, "ratchet_workers") == [2]
    assert page.decode().count("# TYPE ratchet_queue_length gauge") == 1


def test_a_count_that_only_another_version_knows_is_still_shown() -> None:
    page = page_of(
        [{'["ratchet_novelties_total",{"kind":"x"}]': 2}, {'["ratchet_novelties_total",{"kind":"x"}]': 3}]
    )
    assert values(page, "ratchet_novelties_total", {"kind": "x"}) == [5]


def test_a_snapshot_is_flat_json_without_moments_of_creation() -> None:
    taken = spawned(1)
    assert json.loads(json.dumps(taken)) == taken
    assert not [key for key in taken if "_created" in key]
