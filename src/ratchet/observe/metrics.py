"""Counting what this process does, and adding up what all processes did.

Each process stores its `snapshot` with its heartbeat; the `/metrics` of any server merges those of the whole
fleet. A forked child inherits the counts of its parent, so only a process that started afresh may store one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "ratchet"

_REGISTRY = CollectorRegistry()
_REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_JOB_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
_WAIT_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 3600)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(name, text, labels, namespace=PREFIX, registry=_REGISTRY)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(name, text, labels, namespace=PREFIX, registry=_REGISTRY, buckets=buckets)


jobs_finished = _counter("jobs_finished", "Jobs that ended, by outcome.", "kind", "outcome")
job_seconds = _histogram("job_seconds", "Wall time of a job from start to end.", _JOB_BUCKETS, "kind")
job_wait_seconds = _histogram("job_wait_seconds", "Time from enqueue to start of a job.", _WAIT_BUCKETS)
http_requests = _counter("http_requests", "HTTP requests answered.", "method", "route", "status")
http_request_seconds = _histogram(
    "http_request_seconds", "Time to answer an HTTP request.", _REQUEST_BUCKETS, "method", "route"
)
events_appended = _counter("events_appended", "Events appended to the ledger.")
transitions = _counter("transitions", "Status changes, by entity and new status.", "entity", "to")
webhooks = _counter("webhooks", "Deliveries of webhooks, by what became of them.", "provider", "status")

Snapshot = dict[str, float]


@dataclass(frozen=True, slots=True)
class Gauge:
    """A value that is read rather than counted, such as the length of a queue. The prefix is added."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def snapshot() -> Snapshot:
    """Every sample of this process. A key is the JSON text of `[name, labels]`."""
    samples = (sample for metric in _REGISTRY.collect() for sample in metric.samples)
    return {
        _key(each.name, each.labels): each.value for each in samples if not each.name.endswith("_created")
    }


def merge(snapshots: Iterable[Mapping[str, float]]) -> Snapshot:
    """The sums over all processes."""
    total: defaultdict[str, float] = defaultdict(float)
    for each in snapshots:
        for key, value in each.items():
            total[key] += value
    return dict(total)


@dataclass(frozen=True, slots=True)
class TimedCalls:
    """What the ledger has counted of one thing: how many calls there were and in how much time they ended.

    `within` has the calls that took at most so many seconds, of all in `calls`.
    """

    labels: Mapping[str, str]
    calls: float
    seconds: float
    within: Mapping[float, float]


def histogram(name: str, text: str, found: Iterable[TimedCalls]) -> Metric:
    """A histogram of what the ledger has counted. The prefix is added."""
    family = Metric(f"{PREFIX}_{name}", text, "histogram")
    for each in found:
        labels = dict(each.labels)
        for bound, count in sorted(each.within.items()):
            family.add_sample(f"{family.name}_bucket", {**labels, "le": str(bound)}, count)
        family.add_sample(f"{family.name}_bucket", {**labels, "le": "+Inf"}, each.calls)
        family.add_sample(f"{family.name}_count", labels, each.calls)
        family.add_sample(f"{family.name}_sum", labels, each.seconds)
    return family


def counter(name: str, text: str, found: Iterable[tuple[Mapping[str, str], float]]) -> Metric:
    """A counter that the ledger keeps. The prefix is added."""
    family = Metric(f"{PREFIX}_{name}", text, "counter")
    for labels, value in found:
        family.add_sample(f"{family.name}_total", dict(labels), value)
    return family


def exposition(
    merged: Mapping[str, float], gauges: Iterable[Gauge] = (), counted: Iterable[Metric] = ()
) -> bytes:
    """Prometheus text format 0.0.4, to be served as `CONTENT_TYPE`."""
    return generate_latest(_Page([*_families(merged), *counted, *_gauge_families(gauges)]))


class _Page(CollectorRegistry):
    """Ready families in the shape that `generate_latest` asks for."""

    def __init__(self, families: list[Metric]) -> None:
        super().__init__(auto_describe=False)
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


def _families(merged: Mapping[str, float]) -> list[Metric]:
    families = {
        metric.name: Metric(metric.name, metric.documentation, metric.type) for metric in _REGISTRY.collect()
    }
    samples = [(*_name_and_labels(key), value) for key, value in merged.items()]
    # The database may have sorted the keys by text; buckets must come by number.
    for name, labels, value in sorted(samples, key=lambda each: _rank(each[0], each[1])):
        family = _family_of(name)
        if family not in families:
            # A process with another version of Ratchet counted something that this one does not know.
            families[family] = Metric(name, "Not known to this version.", "unknown")
        families[family].add_sample(name, labels, value)
    return list(families.values())


def _gauge_families(gauges: Iterable[Gauge]) -> list[Metric]:
    families: dict[str, Metric] = {}
    for gauge in gauges:
        name = f"{PREFIX}_{gauge.name}"
        family = families.setdefault(name, Metric(name, gauge.help, "gauge"))
        family.add_sample(name, dict(gauge.labels), gauge.value)
    return list(families.values())


def _key(name: str, labels: Mapping[str, str]) -> str:
    return json.dumps([name, labels], sort_keys=True, separators=(",", ":"))


def _name_and_labels(key: str) -> tuple[str, dict[str, str]]:
    name, labels = json.loads(key)
    return name, labels


def _family_of(sample: str) -> str:
    for suffix in ("_bucket", "_count", "_sum", "_total"):
        sample = sample.removesuffix(suffix)
    return sample


def _rank(name: str, labels: Mapping[str, str]) -> tuple[str, list[tuple[str, str]], str, float]:
    series = sorted((key, value) for key, value in labels.items() if key != "le")
    return _family_of(name), series, name, float(labels.get("le", 0))
