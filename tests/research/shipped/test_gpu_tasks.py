"""The tasks for GPUs: whole on paper, small on a CPU, and plain about what a machine lacks."""

from __future__ import annotations

import importlib.util
import json
import lzma
import tomllib
from array import array
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ratchet.research.shipped
from ratchet.kernel import Direction, Missing, TrialStatus
from ratchet.research.adapter import TaskAdapter
from ratchet.research.measurement.machine import Machine
from ratchet.research.measurement.result import Unmeasured
from tests.research.shipped.trying import SHIPPED, Laboratory, shipped

NAMES = ("parameter_golf", "cifar_airbench96", "nanochat_d12")
VARIABLES = {
    "parameter_golf": ("PARAMETER_GOLF_DATA", "PARAMETER_GOLF_PYTHON"),
    "cifar_airbench96": ("CIFAR_AIRBENCH_DATA", "CIFAR_AIRBENCH_PYTHON"),
    "nanochat_d12": ("NANOCHAT_DATA", "NANOCHAT_PYTHON"),
}


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shipped_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_it_is_an_entry_point_and_can_be_read_in_all_its_variants(name: str) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["ratchet.tasks"][name] == f"ratchet.research.shipped:{name}"
    assert getattr(ratchet.research.shipped, name)() == SHIPPED / name
    whole = shipped(name)
    assert [shipped(name, each).variant for each in whole.variants] == list(whole.variants)
    assert all(specialist.preamble for specialist in whole.roster)
    assert (whole.root / whole.knowledge_dir / "INIT.md").is_file()


@pytest.mark.parametrize("name", NAMES)
def test_what_the_machine_lacks_is_named_all_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES[name]:
        monkeypatch.delenv(variable, raising=False)
    task = shipped(name)
    task.slots = replace(task.slots, devices=(("0", ("/dev/no-such-gpu",)),))
    with pytest.raises(Missing) as missing:
        Machine(task, tmp_path / "home")
    for said in (*VARIABLES[name], "no-such-gpu"):
        assert said in str(missing.value)
    assert f"set {VARIABLES[name][0]}" in (missing.value.hint or "")


@pytest.mark.parametrize("name", NAMES)
def test_a_variant_of_the_roster_changes_nothing_but_the_roster(name: str) -> None:
    whole = shipped(name)
    for variant, count in (("single", 1), ("generic", 10)):
        other = shipped(name, variant)
        assert len(other.doers) == count
        assert not other.analysts
        assert facts(other) == facts(whole)
    assert len(whole.doers) >= 3
    assert len(whole.analysts) == 1
    assert len(shipped(name, "generic+tiny").doers) == 10


def facts(task: TaskAdapter) -> dict[str, Any]:
    left_out = ("doers", "analysts", "variant")
    return {name: value for name, value in vars(task).items() if name not in left_out}


@pytest.mark.parametrize("name", NAMES)
def test_the_small_one_runs_the_same_script_and_evaluator(name: str) -> None:
    whole, tiny = shipped(name), shipped(name, "tiny")
    assert tiny.trial is not None
    assert whole.trial is not None
    assert tiny.trial.argv == tuple({"full": "tiny"}.get(word, word) for word in whole.trial.argv)
    assert (tiny.stage_files, tiny.score_field, tiny.direction) == (
        whole.stage_files,
        whole.score_field,
        whole.direction,
    )
    assert tiny.evaluator.function == whole.evaluator.function
    assert (whole.slots.kind, tiny.slots.kind) == ("gpu", "cpu")


def test_budgets_and_limits_are_those_of_the_tasks() -> None:
    golf, cifar, chat = map(shipped, NAMES)
    assert golf.trial is not None
    assert golf.apply is not None
    assert (golf.trial.bounds.wall_seconds, golf.apply.bounds.wall_seconds) == (600, 600)
    assert cifar.processes_per_measurement == 10
    assert chat.trial is not None
    assert chat.trial.bounds.wall_seconds == 5400
    assert [each.direction for each in (golf, cifar, chat)] == [Direction.MIN, Direction.MIN, Direction.MAX]
    assert all(each.requires_calibrated_baseline for each in (golf, cifar, chat))


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_the_small_one_is_measured_on_both_splits(name: str, tmp_path: Path) -> None:
    laboratory = Laboratory(shipped(name, "single+tiny"), tmp_path / "laboratory")
    shown = [laboratory.measure(held_out=held_out) for held_out in (False, True)]
    if name == "parameter_golf":
        assert all(0.5 < each.score < 3 for each in shown)
        assert all(0 < each.measurements["artifact_bytes"] < 50_000 for each in shown)
    elif name == "nanochat_d12":
        assert all(0.1 < each.score <= 1 for each in shown)
        assert all(each.measurements["val_bpb"] < 2 for each in shown)
    else:
        assert all(each.measurements["accuracy"] >= 0.96 for each in shown)
        assert all(len(each.facts["trials"]) == 3 for each in shown)


def test_what_was_packed_runs_by_itself_and_sees_nothing_else(tmp_path: Path) -> None:
    laboratory = Laboratory(shipped("parameter_golf", "tiny"), tmp_path / "laboratory")
    recipe = (
        "import os\n"
        "def train(data, vocab, seed):\n"
        "    return b'weights' * 1000\n"
        "def predict(weights, contexts):\n"
        "    '''Says what it must.'''\n"
        "    assert weights == b'weights' * 1000\n"
        "    assert not os.path.exists('/data'), os.listdir('/data')\n"
        "    assert sorted(os.listdir()) == ['submission.py', 'weights.xz']\n"
        "    for context in contexts:\n"
        "        assert len(context) == 32\n"
        "        yield [0.0] * 27\n"
    )
    measured = laboratory.measure({"tiny.py": recipe})
    about = json.loads((SHIPPED / "parameter_golf/tiny/val/meta.json").read_text())
    assert about["vocab"] == 27
    # As many bits as a choice among 27 takes.
    assert measured.score == pytest.approx(4.75, abs=0.01)
    assert measured.measurements["artifact_bytes"] < 1500


def test_a_submission_that_is_too_large_is_a_near_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = loaded(SHIPPED / "parameter_golf/evaluator/evaluate.py")
    monkeypatch.setattr(evaluate, "VAL", SHIPPED / "parameter_golf/tiny/val")
    about, contexts, targets = evaluate.drawn(0, False)
    assert len(contexts) == about["length"] * len(targets)
    trained, out = tmp_path / "trained", tmp_path / "out"
    trained.mkdir()
    out.mkdir()
    (trained / "submission.py").write_bytes(b"x")
    with (trained / "weights.xz").open("wb") as file:
        file.truncate(16_000_000)
    (out / "scores.f32").write_bytes(array("f", [0.0] * (27 * len(targets))).tobytes())
    asked = {
        "seed": 0,
        "held_out": False,
        "trial": {"out": str(out), "wall_ms": 1.0, "trained": {"out": str(trained), "wall_ms": 1.0}},
    }
    found = evaluate.score(asked)
    assert (found["status"], found["invalid"]) == ("size_blocked", "1 bytes too many: 16,000,000 are allowed")
    assert found["val_bpb"] == pytest.approx(4.75, abs=0.01)
    (trained / "weights.xz").write_bytes(b"")
    assert "invalid" not in evaluate.score(asked)
    (trained / "more").write_bytes(b"")
    assert evaluate.score(asked)["status"] == "disqualified"
    (trained / "more").unlink()
    for bad in ([float("nan")], [float("inf")]):
        (out / "scores.f32").write_bytes(array("f", bad * (27 * len(targets))).tobytes())
        assert "not all finite" in evaluate.score(asked)["invalid"]


def test_no_context_holds_what_follows_another(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = loaded(SHIPPED / "parameter_golf/evaluator/evaluate.py")
    monkeypatch.setattr(evaluate, "VAL", SHIPPED / "parameter_golf/tiny/val")
    shown = evaluate.prepare({"seed": 1, "held_out": False})
    assert set(shown) == {"vocab", "length", "contexts"}
    searched, held_out = (evaluate.drawn(1, held_out)[2] for held_out in (False, True))
    assert len(searched) + len(held_out) == 24_000 // 2 // (shown["length"] + 1)


def test_code_is_packed_without_comments_and_runs_as_it_was() -> None:
    pack = loaded(SHIPPED / "parameter_golf/pack_submission.py")
    source = "# a comment\ndef f():\n    'a docstring'\n    return 7  # seven\n"
    assert pack.bare(source) == "def f():\n    return 7"
    found: dict[str, Any] = {}
    exec(pack.bare(source), found)
    assert found["f"]() == 7
    assert lzma.decompress(lzma.compress(b"x", filters=pack._FILTERS)) == b"x"


def test_the_tool_says_what_the_code_will_take(tmp_path: Path) -> None:
    pack = loaded(SHIPPED / "parameter_golf/pack_submission.py")
    (tmp_path / "recipe.py").write_text((SHIPPED / "parameter_golf/recipe.py").read_text())
    said = pack.project({"candidate": str(tmp_path), "given": {}})
    assert 1000 < said["code_bytes"] < 6000
    assert said["left_for_weights"] == 16_000_000 - said["code_bytes"]


@pytest.mark.parametrize(("mistakes", "passes"), [(24, True), (25, False)])
def test_the_gate_counts_whole_predictions_over_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistakes: int, passes: bool
) -> None:
    evaluate = loaded(SHIPPED / "cifar_airbench96/evaluator/evaluate.py")
    labels = SHIPPED / "cifar_airbench96/tiny/labels/labels.bin"
    monkeypatch.setattr(evaluate, "LABELS", labels)
    right = labels.read_bytes()
    wrong = bytes((label + 1) % 10 for label in right[:mistakes]) + right[mistakes:]
    trials = []
    for number, content in enumerate((wrong, right, right)):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "predictions.bin").write_bytes(content)
        trials.append({"out": str(place), "wall_ms": 1000.0 * (number + 1)})
    answer = evaluate.score({"trials": trials})
    assert answer["train_s"] == pytest.approx(2.0)
    assert ("invalid" not in answer) is passes
    assert passes or answer["status"] == "disqualified"


@pytest.mark.soak
def test_a_recipe_that_is_too_slow_overruns_the_budget_of_its_part(tmp_path: Path) -> None:
    task = shipped("parameter_golf", "tiny")
    assert task.apply is not None
    task.apply = replace(task.apply, bounds=replace(task.apply.bounds, cpu_seconds=1.0))
    laboratory = Laboratory(task, tmp_path / "laboratory")
    recipe = (
        "def train(data, vocab, seed):\n    return b''\n"
        "def predict(weights, contexts):\n    while True: pass\n    yield\n"
    )
    with pytest.raises(Unmeasured) as failed:
        laboratory.measure({"tiny.py": recipe})
    assert failed.value.status is TrialStatus.EVAL_BUDGET_OVERRUN
