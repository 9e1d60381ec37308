"""digits96: the time to read digits well enough, measured where the recipe cannot reach."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ratchet.kernel import TrialStatus
from ratchet.research.measurement.result import Unmeasured
from tests.research.shipped.trying import EvaluatorBroke, Laboratory, shipped

TEST = 350
PROCESSES = 5
GATE = 1680


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return Laboratory(shipped("digits96"), tmp_path / "laboratory")


def labels() -> bytes:
    return (shipped("digits96").root / "evaluator" / "labels.bin").read_bytes()


def left(tmp_path: Path, *predictions: bytes) -> list[Path]:
    places = []
    for number, content in enumerate(predictions):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "predictions.bin").write_bytes(content)
        places.append(place)
    return places


def wrong(right: bytes, count: int) -> bytes:
    """The right answers, but for the first so many."""
    return bytes((label + 1) % 10 for label in right[:count]) + right[count:]


@pytest.mark.soak
@pytest.mark.parametrize("held_out", [False, True])
def test_the_baseline_passes_its_own_gate(laboratory: Laboratory, held_out: bool) -> None:
    measured = laboratory.measure(held_out=held_out)
    assert measured.measurements["correct"] >= GATE
    assert measured.measurements["fastest_ms"] <= measured.score <= measured.measurements["slowest_ms"]
    assert len(measured.facts["trials"]) == PROCESSES


@pytest.mark.parametrize(("mistakes", "passes"), [(70, True), (71, False)])
def test_the_gate_counts_whole_predictions_over_all_processes(
    laboratory: Laboratory, tmp_path: Path, mistakes: int, passes: bool
) -> None:
    right = labels()
    places = left(tmp_path, wrong(right, mistakes), *[right] * (PROCESSES - 1))
    answer = laboratory.score(places)
    assert ("train_ms" in answer) is passes
    if passes:
        assert answer["measurements"]["correct"] == GATE
    else:
        assert answer["status"] == "disqualified"
        assert "1679 of 1750" in answer["invalid"]


def test_the_score_is_the_mean_of_the_times_that_the_sandbox_tells(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    places = left(tmp_path, *[labels()] * PROCESSES)
    (places[0] / "wall_ms").write_text("1")
    assert laboratory.score(places)["train_ms"] == pytest.approx(100.0)


def absent(place: Path) -> None:
    (place / "predictions.bin").unlink()


def a_directory(place: Path) -> None:
    absent(place)
    (place / "predictions.bin").mkdir()


def a_pipe(place: Path) -> None:
    absent(place)
    os.mkfifo(place / "predictions.bin")


def a_link_to_the_labels(place: Path) -> None:
    absent(place)
    (place / "predictions.bin").symlink_to(shipped("digits96").root / "evaluator" / "labels.bin")


def huge(place: Path) -> None:
    with (place / "predictions.bin").open("r+b") as file:
        file.truncate(2**33)


def written(content: bytes) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        (place / "predictions.bin").write_bytes(content)

    return write


@pytest.mark.parametrize(
    "spoil",
    [
        absent,
        a_directory,
        a_pipe,
        a_link_to_the_labels,
        huge,
        pytest.param(written(b""), id="empty"),
        pytest.param(written(bytes(TEST - 1)), id="too few"),
        pytest.param(written(bytes(TEST + 1)), id="too many"),
        pytest.param(written(bytes([10]) * TEST), id="no digits"),
        pytest.param(written(b"7" * TEST), id="text"),
        pytest.param(written(pickle.dumps([0] * TEST)), id="pickle"),
    ],
)
def test_what_is_not_a_file_of_predictions_is_disqualified(
    laboratory: Laboratory, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    places = left(tmp_path, *[labels()] * PROCESSES)
    spoil(places[3])
    answer = laboratory.score(places)
    assert answer["status"] == "disqualified"
    assert "predictions.bin" in answer["invalid"]
    assert "train_ms" not in answer


@pytest.mark.parametrize("count", [1, 4, 6])
def test_a_measurement_of_another_number_of_processes_has_no_score(
    laboratory: Laboratory, tmp_path: Path, count: int
) -> None:
    with pytest.raises(EvaluatorBroke, match="a measurement is 5 processes"):
        laboratory.score(left(tmp_path, *[labels()] * count))


@pytest.mark.parametrize("split", ["inputs", "held_out"])
def test_what_the_recipe_is_shown_has_no_labels_of_the_test_images(
    laboratory: Laboratory, split: str
) -> None:
    assert [path.name for path in (laboratory.task.root / split).iterdir()] == ["digits.npz"]
    with np.load(laboratory.task.root / split / "digits.npz", allow_pickle=False) as data:
        shapes = {name: data[name].shape for name in data.files}
    assert shapes == {"train_images": (1097, 8, 8), "train_labels": (1097,), "test_images": (TEST, 8, 8)}


def test_a_recipe_cannot_read_the_labels(laboratory: Laboratory) -> None:
    secret = laboratory.task.root / "evaluator" / "labels.bin"
    stealing = (
        "import pathlib, sys\n"
        f"found = pathlib.Path({str(secret)!r}).read_bytes()\n"
        "pathlib.Path(sys.argv[2], 'predictions.bin').write_bytes(found)\n"
    )
    with pytest.raises(Unmeasured, match="FileNotFoundError") as caught:
        laboratory.measure({"recipe.py": stealing})
    assert caught.value.status is TrialStatus.CRASH


@pytest.mark.soak
def test_predictions_that_were_brought_along_fail_on_the_held_out_split(laboratory: Laboratory) -> None:
    remembered = {
        "recipe.py": "import pathlib, sys\n"
        f"pathlib.Path(sys.argv[2], 'predictions.bin').write_bytes({labels()!r})\n"
    }
    assert laboratory.measure(remembered).measurements["correct"] == TEST * PROCESSES
    with pytest.raises(Unmeasured, match="the gate is at 1680") as caught:
        laboratory.measure(remembered, held_out=True)
    assert caught.value.status is TrialStatus.DISQUALIFIED


def test_its_trials_are_timed_one_at_a_time(laboratory: Laboratory) -> None:
    assert len(laboratory.task.slots.names) == 1
    assert not laboratory.task.keep.deterministic


@pytest.mark.soak
def test_a_short_search_gets_faster_without_failing_the_gate(laboratory: Laboratory) -> None:
    baseline, best, _ = laboratory.search(trials=12)
    # The machine may have been quicker at the beginning than later.
    assert best < max(baseline, laboratory.measure().score)
