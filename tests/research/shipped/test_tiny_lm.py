"""tiny_lm: a model is a file that the evaluator interprets, and no file makes it hand out more than probability one."""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ratchet.kernel import TrialStatus
from ratchet.research.measurement.result import Unmeasured
from tests.research.shipped.trying import SHIPPED, Laboratory, shipped

CAP = 16_384
TABLE: dict[str, Any] = {"order": 1, "slots": 64, "ways": 2, "check_bits": 4, "alpha": 0.5, "discount": 0.25}
HEADER: dict[str, Any] = {
    "alphabet": [97, 98, 32],
    "count_bits": 4,
    "levels": [0, *range(1, 16)],
    "tables": [TABLE],
}


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return Laboratory(shipped("tiny_lm"), tmp_path / "laboratory")


def model(header: object = HEADER, payload: bytes = bytes(64)) -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return b"TLM1" + struct.pack("<I", len(head)) + head + payload


def with_table(**changed: Any) -> bytes:
    return model({**HEADER, "tables": [{**TABLE, **changed}]})


def scored(laboratory: Laboratory, tmp_path: Path, content: bytes) -> dict[str, Any]:
    (tmp_path / "model.tlm").write_bytes(content)
    return laboratory.score([tmp_path])


def changed(old: str, new: str) -> dict[str, str]:
    """The recipe with this one change."""
    text = (SHIPPED / "tiny_lm" / "recipe.py").read_text()
    assert text.count(old) == 1
    return {"recipe.py": text.replace(old, new)}


@pytest.mark.parametrize("held_out", [False, True])
def test_the_baseline_is_scored_and_fits(laboratory: Laboratory, held_out: bool) -> None:
    measured = laboratory.measure(held_out=held_out)
    assert 1.0 < measured.score < 4.0
    assert measured.measurements["artifact_bytes"] < CAP


def test_the_same_recipe_has_the_same_score(laboratory: Laboratory) -> None:
    assert laboratory.measure(seed=1).score == laboratory.measure(seed=2).score
    assert laboratory.task.keep.deterministic


def test_a_model_that_knows_nothing_costs_eight_bits_per_byte(laboratory: Laboratory, tmp_path: Path) -> None:
    answer = scored(laboratory, tmp_path, model({**HEADER, "tables": []}, b""))
    assert answer["bits_per_byte"] == pytest.approx(8.0)


def test_too_large_a_model_is_blocked_with_its_score(laboratory: Laboratory) -> None:
    with pytest.raises(Unmeasured, match="at most 16384") as caught:
        laboratory.measure(changed("BYTES = 9000 ", "BYTES = 18000 "))
    assert caught.value.status is TrialStatus.SIZE_BLOCKED
    assert caught.value.score is not None
    assert 1.0 < caught.value.score < 4.0
    assert caught.value.measurements["artifact_bytes"] > CAP


def test_training_for_too_long_is_an_overrun(laboratory: Laboratory) -> None:
    trial = laboratory.task.trial
    assert trial is not None
    brief = replace(trial, bounds=replace(trial.bounds, cpu_seconds=0.5))
    with pytest.raises(Unmeasured) as caught:
        replace(laboratory, task=replace(laboratory.task, trial=brief)).measure(
            {"recipe.py": "while True:\n    pass\n"}
        )
    assert caught.value.status is TrialStatus.TRAIN_BUDGET_OVERRUN


def evaluator() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "tiny_lm_evaluate", SHIPPED / "tiny_lm" / "evaluator" / "evaluate.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_tables_hold_the_probabilities_of_all_bytes_add_up_to_one(seed: int) -> None:
    evaluate = evaluator()
    chance = np.random.default_rng(seed)
    tables = [{**TABLE, "order": order, "alpha": float(chance.uniform(0.001, 9))} for order in range(4)]
    header = {**HEADER, "tables": tables, "levels": [0, *chance.uniform(0, 1e6, 15).tolist()]}
    read = evaluate.parse(model(header, chance.bytes(64 * len(tables))))
    contexts = chance.integers(0, 2**63, 50).astype(np.uint64)
    likely = np.full((len(contexts), 4), 1 / 256)
    for table in read.tables.values():
        likely = evaluate.mixed(table, contexts, read.alphabet, likely)
    assert likely.min() > 0
    assert likely[:, :3].sum(axis=1) + 253 * likely[:, 3] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"TLM1", id="without a header"),
        pytest.param(pickle.dumps(HEADER), id="pickle"),
        pytest.param(model()[:-1], id="truncated"),
        pytest.param(model() + b"\0", id="something left over"),
        pytest.param(b"TLM1" + struct.pack("<I", 2**32 - 1) + b"{}", id="a header of 4 GB"),
        pytest.param(model(b"not json"), id="no JSON"),
        pytest.param(model(b"[" * 4000), id="nested"),
        pytest.param(model(b"\xff\xfe{}"), id="no UTF-8"),
        pytest.param(model([1, 2]), id="a list"),
        pytest.param(model({**HEADER, "code": "import os"}), id="an unknown key"),
        pytest.param(model({**HEADER, "count_bits": True}), id="a truth as a width"),
        pytest.param(model({**HEADER, "count_bits": 64}), id="too wide a count"),
        pytest.param(model({**HEADER, "levels": [0, *[float("nan")] * 15]}), id="levels of NaN"),
        pytest.param(model({**HEADER, "levels": [0, *[float("inf")] * 15]}), id="infinite levels"),
        pytest.param(model({**HEADER, "levels": [0, *[-1] * 15]}), id="negative levels"),
        pytest.param(model({**HEADER, "levels": [1] * 16}), id="an empty slot that counts"),
        pytest.param(model({**HEADER, "levels": "0" * 16}), id="levels of text"),
        pytest.param(model({**HEADER, "alphabet": []}), id="no alphabet"),
        pytest.param(model({**HEADER, "alphabet": [97, 97]}), id="a byte twice"),
        pytest.param(model({**HEADER, "alphabet": [256]}), id="no byte"),
        pytest.param(model({**HEADER, "alphabet": "../../evaluator/valid.txt"}), id="a path"),
        pytest.param(model({**HEADER, "tables": [TABLE, TABLE]}, bytes(128)), id="an order twice"),
        pytest.param(model({**HEADER, "tables": [TABLE] * 1000}), id="a thousand tables"),
        pytest.param(with_table(slots=0), id="no slots"),
        pytest.param(with_table(slots=-64), id="negative slots"),
        pytest.param(with_table(slots=2**62), id="slots without end"),
        pytest.param(with_table(slots=2**20), id="more slots than bytes"),
        pytest.param(with_table(slots=64.0), id="slots with a point"),
        pytest.param(with_table(order=9), id="too long a context"),
        pytest.param(with_table(order=-1), id="a context of the future"),
        pytest.param(with_table(ways=10**9), id="a billion ways"),
        pytest.param(with_table(check_bits=64), id="too wide a check"),
        pytest.param(with_table(alpha=0), id="no weight for the unseen"),
        pytest.param(with_table(alpha=-1), id="negative weight"),
        pytest.param(with_table(alpha=float("nan")), id="NaN"),
        pytest.param(with_table(discount=float("inf")), id="infinity"),
        pytest.param(with_table(discount=-5.0), id="negative discount"),
        pytest.param(with_table(alpha="1e999"), id="a number as text"),
        pytest.param(with_table(path="/etc/passwd"), id="a table with a path"),
    ],
)
def test_what_is_not_a_model_is_disqualified(laboratory: Laboratory, tmp_path: Path, content: bytes) -> None:
    answer = scored(laboratory, tmp_path, content)
    assert answer["status"] == "disqualified"
    assert "bits_per_byte" not in answer


def test_such_a_model_is_one_when_nothing_is_wrong_with_it(laboratory: Laboratory, tmp_path: Path) -> None:
    assert scored(laboratory, tmp_path, model())["bits_per_byte"] == pytest.approx(8.0)


def absent(path: Path) -> None:
    assert not path.exists()


def far_too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**34)


@pytest.mark.parametrize("make", [absent, os.mkfifo, os.mkdir, far_too_large])
def test_what_is_not_a_small_plain_file_is_disqualified(
    laboratory: Laboratory, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "model.tlm")
    assert laboratory.score([tmp_path])["status"] == "disqualified"


def test_a_link_is_not_followed(laboratory: Laboratory, tmp_path: Path) -> None:
    (tmp_path / "good.tlm").write_bytes(model())
    (tmp_path / "model.tlm").symlink_to(tmp_path / "good.tlm")
    assert laboratory.score([tmp_path])["status"] == "disqualified"


@pytest.mark.parametrize("name", ["valid.txt", "held_out.txt"])
def test_a_recipe_cannot_read_the_hidden_texts(laboratory: Laboratory, name: str) -> None:
    secret = laboratory.task.root / "evaluator" / name
    stealing = changed('(inputs / "train.txt").read_bytes()', f"Path({str(secret)!r}).read_bytes()")
    with pytest.raises(Unmeasured, match="FileNotFoundError") as caught:
        laboratory.measure(stealing)
    assert caught.value.status is TrialStatus.CRASH


@pytest.mark.parametrize(("variant", "names"), [("single", 1), ("generic", 4)])
def test_a_variant_changes_only_who_works_on_it(laboratory: Laboratory, variant: str, names: int) -> None:
    task, other = laboratory.task, shipped("tiny_lm", variant)
    assert len(other.doers) == names
    assert (other.trial, other.evaluator, other.keep) == (task.trial, task.evaluator, task.keep)


@pytest.mark.soak
def test_a_short_search_finds_a_better_model(laboratory: Laboratory) -> None:
    baseline, best, _ = laboratory.search(trials=20)
    assert best < baseline - 0.2
