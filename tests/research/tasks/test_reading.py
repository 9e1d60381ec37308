"""What a task.toml says reaches the task."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import Direction, Misuse
from ratchet.research.adapter import Program, Specialist, TaskAdapter
from ratchet.research.tasks import read_task
from ratchet.sandbox import Bounds
from tests.research.tasks.folders import Folder

EVERYTHING = """\
[task]
name = "whole"
description = "All that can be said."
recipe = ["src", "main.py"]
inputs = "inputs"
held_out_inputs = "held_out"
stage_files = { "run.sh" = "bin/run.sh" }
output_dirs = ["out"]
environment = { OMP_NUM_THREADS = "1" }
job_prefix = "who"
known_best = "0.1 by somebody"
plain_baseline = "0.9"

[score]
field = "loss"
label = "bits"
direction = "min"
columns = ["train_s"]

[trial]
command = ["bash", "bin/run.sh", "{inputs}", "{out}", "{seed}"]
seconds = 7
cpu_seconds = 6.5
memory_mb = 300
processes = 5
output_kb = 12
file_mb = 3
processes_per_measurement = 4

[evaluator]
directory = "judge"
function = "score"
file = "inner/score.py"
modules = ["json", "os.path"]
prepare = "prepare"
reads_candidate = true
seconds = 8.0

[keep]
policy = "strict"
deterministic = true
baseline_repeats = 7
least = 4
most = 9
alpha = 0.01
min_effect = 0.2
seed = 11
held_out = true
held_out_tolerance = 0.3

[slots]
kind = "gpu"
names = ["0", "GPU-1,2"]

[size]
limit_bytes = 1000
paths = ["src"]

[baseline]
score = -1.5
requires_calibration = true
hypothesis = "as it was"
note = "measured on a laptop"

[stops]
trials = 10
hours = 2.5
hours_without_keep = 1

[sessions]
seconds = 60
trials = 3

[prompt]
rules = "No network."
limits = "Be quick."
keep_semantics = "Lower wins."
knowledge = "known"

[[specialist]]
name = "opt"
preamble = "You tune."
domain = "optimiser"
engine = "codex"
model = "m1"
priority = 2

[[specialist]]
name = "reader"
preamble_file = "reader.md"
analyst = true

[[tool]]
name = "measure_length"
description = "How long it is."
command = ["wc", "-c"]
seconds = 2.0
input_schema = { type = "object", properties = { path = { type = "string" } } }
"""


@pytest.fixture
def whole(tmp_path: Path) -> TaskAdapter:
    folder = Folder(tmp_path / "whole")
    folder.toml(EVERYTHING)
    for place in ("src/a.py", "main.py", "run.sh", "inputs/x", "held_out/x", "known/INIT.md"):
        folder.put(place, "")
    folder.put("reader.md", "You read.\n")
    folder.put("judge/inner/score.py", "from json import loads as score\n\nif True:\n    prepare = score\n")
    return folder.read()


def test_every_key_reaches_its_attribute(whole: TaskAdapter) -> None:
    assert (whole.name, whole.description) == ("whole", "All that can be said.")
    assert (whole.recipe, whole.inputs, whole.held_out_inputs) == (("src", "main.py"), "inputs", "held_out")
    assert (whole.stage_files, whole.output_dirs) == ({"run.sh": "bin/run.sh"}, ("out",))
    assert (whole.environment, whole.job_prefix) == ({"OMP_NUM_THREADS": "1"}, "who")
    assert (whole.known_best, whole.plain_baseline) == ("0.1 by somebody", "0.9")
    assert (whole.score_field, whole.label, whole.direction) == ("loss", "bits", Direction.MIN)
    assert (whole.columns, whole.processes_per_measurement) == (("train_s",), 4)
    assert (whole.slots.kind, whole.slots.names) == ("gpu", ("0", "GPU-1,2"))
    assert (whole.size_limit_bytes, whole.size_paths) == (1000, ("src",))
    assert (whole.baseline_score, whole.requires_calibrated_baseline) == (-1.5, True)
    assert (whole.bootstrap_hypothesis, whole.baseline_note) == ("as it was", "measured on a laptop")
    assert (whole.max_trials, whole.max_hours, whole.hours_without_keep) == (10, 2.5, 1)
    assert (whole.session_seconds, whole.trials_per_session) == (60, 3)
    assert (whole.rules, whole.limits, whole.keep_semantics) == ("No network.", "Be quick.", "Lower wins.")
    assert whole.knowledge_dir == "known"


def test_programs_and_their_limits_are_read(whole: TaskAdapter) -> None:
    kib = 1024
    assert whole.trial == Program(
        argv=("bash", "bin/run.sh", "{inputs}", "{out}", "{seed}"),
        bounds=Bounds(7.0, 6.5, 300 * kib * kib, 5, 12 * kib, 3 * kib * kib),
    )
    evaluator = whole.evaluator
    assert (whole.evaluator_dir, evaluator.file, evaluator.function) == ("judge", "inner/score.py", "score")
    assert (evaluator.prepare, evaluator.reads_candidate) == ("prepare", True)
    assert (evaluator.modules, evaluator.bounds) == (("json", "os.path"), Bounds(8.0))
    [tool] = whole.tool_commands
    assert (tool.name, tool.description) == ("measure_length", "How long it is.")
    assert tool.program == Program(argv=("wc", "-c"), bounds=Bounds(2.0))
    assert tool.input_schema["properties"] == {"path": {"type": "string"}}


def test_the_rule_for_keeping_is_read(whole: TaskAdapter) -> None:
    keep = whole.keep
    assert (keep.policy, keep.deterministic, keep.baseline_repeats) == ("strict", True, 7)
    assert (keep.least, keep.most, keep.alpha, keep.min_effect, keep.seed) == (4, 9, 0.01, 0.2, 11)
    assert (keep.held_out, keep.held_out_tolerance) == (True, 0.3)


def test_the_roster_has_doers_and_analysts(whole: TaskAdapter) -> None:
    doer = Specialist(
        name="opt", preamble="You tune.", domain="optimiser", engine="codex", model="m1", priority=2
    )
    assert whole.doers == (doer,)
    assert whole.analysts == (Specialist(name="reader", preamble="You read.\n", analyst=True),)
    assert whole.roster == (*whole.doers, *whole.analysts)


def test_what_is_left_out_is_as_the_adapter_has_it(folder: Folder) -> None:
    task = folder.read()
    plain = TaskAdapter(name="small", root=folder.path)
    for name in (
        "doers",
        "analysts",
        "keep",
        "slots",
        "session_seconds",
        "bootstrap_hypothesis",
        "direction",
    ):
        assert getattr(task, name) == getattr(plain, name)
    assert task.trial is not None
    assert task.trial.bounds == task.evaluator.bounds == Bounds()


def test_an_evaluator_without_a_trial_reads_the_candidate(folder: Folder) -> None:
    folder.swap('[trial]\nfunction = "answer"\nfile = "recipe.py"\n', "")
    assert folder.read().evaluator.reads_candidate


def test_an_evaluator_behind_a_trial_does_not_read_the_candidate_unless_told(folder: Folder) -> None:
    assert not folder.read().evaluator.reads_candidate


@pytest.mark.parametrize(("said", "meant"), [("", True), ("[keep]\nheld_out = false", False)])
def test_held_out_inputs_are_used_unless_told_otherwise(folder: Folder, said: str, meant: bool) -> None:
    folder.put("inputs/x", "")
    folder.put("held_out/x", "")
    folder.swap(
        'recipe = ["recipe.py"]', 'recipe = ["recipe.py"]\ninputs = "inputs"\nheld_out_inputs = "held_out"'
    )
    folder.add(said)
    assert folder.read().keep.held_out is meant


def test_a_held_out_seed_needs_no_data(folder: Folder) -> None:
    folder.add("[keep]\nheld_out = true")
    assert folder.read().keep.held_out


def test_a_folder_without_a_description_is_no_task(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"neither a task\.toml nor a task\.py") as caught:
        read_task(tmp_path)
    assert "ratchet research new" in str(caught.value.hint)


def test_a_folder_behind_a_link_is_read_where_it_lies(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder.path)
    assert read_task(tmp_path / "link").root == folder.path
