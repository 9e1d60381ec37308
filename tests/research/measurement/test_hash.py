"""What decides a score is in the hash of the meter, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ratchet.research.adapter import DataSource, Slots, Specialist, TaskAdapter
from ratchet.sandbox import Bounds
from tests.research.measurement.conftest import NODE, MakeBench, scored_by

FILES = {"data/a": "1", "other/a": "1", "run.sh": "true", "evaluator/table": "1"}
FACTS: dict[str, Any] = {
    "files": FILES,
    "inputs": "data",
    "held_out_inputs": "other",
    "stage_files": {"run.sh": "run.sh"},
}


class Classifying(TaskAdapter):
    def classify(self, answer):  # type: ignore[no-untyped-def]
        return answer


@pytest.mark.parametrize(
    "changed",
    [
        *({"files": {**FILES, name: "2"}} for name in FILES),
        {"evaluate": "def score(asked):\n    return {'score': 1}\n"},
        {"trial": replace(NODE, bounds=Bounds(wall_seconds=3))},
        {"trial": replace(NODE, modules=("math",))},
        {"evaluator": scored_by(bounds=Bounds(wall_seconds=3))},
        {"evaluator": scored_by(reads_candidate=True)},
        {"processes_per_measurement": 2},
        {"environment": {"A": "1"}},
        {"score_field": "bpb"},
        {"size_limit_bytes": 10},
        {"data": (DataSource(name="own", path="data"),)},
        {"slots": Slots(kind="gpu", names=("0",), devices=(("0", ("/dev/zero",)),))},
        {"kind": Classifying},
    ],
)
def test_what_decides_is_in_the_hash(make_bench: MakeBench, changed: dict[str, Any]) -> None:
    assert make_bench(**FACTS).meter.hash != make_bench(**{**FACTS, **changed}).meter.hash


@pytest.mark.parametrize(
    "changed",
    [
        {"recipe": "def solve(asked):\n    return 9\n"},
        {"doers": (Specialist(name="ada"),)},
        {"description": "another"},
        {"files": {**FILES, "knowledge/a.md": "words"}},
    ],
)
def test_what_does_not_decide_is_not(make_bench: MakeBench, changed: dict[str, Any]) -> None:
    plain, other = make_bench(**FACTS).meter, make_bench(**{**FACTS, **changed}).meter
    assert plain.hash == other.hash


def test_the_environment_is_told_once(make_bench: MakeBench) -> None:
    bench = make_bench(trial=replace(NODE, modules=("numpy.linalg", "json")))
    facts = bench.meter.environment_facts()
    assert facts is bench.meter.environment_facts()
    assert set(facts) == {"python", "platform", "machine", "cpu", "cpus", "packages", "git", "sandbox"}
    assert list(facts["packages"]) == ["numpy"]
    assert "seccomp filter" in facts["sandbox"]
