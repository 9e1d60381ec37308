"""Data, environments and GPUs of the machine: shown where they lie, held to what they were, named when they lack."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.judges.scratch import Changed
from ratchet.kernel import Missing, TrialStatus
from ratchet.research.adapter import DataSource, Program, Slots
from ratchet.research.measurement.machine import Machine, find_python, pin_data
from ratchet.research.measurement.slots import gpus
from ratchet.sandbox import Bounds
from tests.research.measurement.conftest import BOUNDS, PYTHON, SCORE_STDOUT, MakeBench, scored_by

READ = "import pathlib, sys\nprint(pathlib.Path(sys.argv[1], 'corpus', 'part').read_text())\n"
COMMAND = Program(argv=(*PYTHON, "recipe.py", "{data}"), bounds=BOUNDS)


def corpus(place: Path, text: str = "7") -> Path:
    place.mkdir(parents=True, exist_ok=True)
    (place / "part").write_text(text)
    return place


def source(path: Path | str, **known: Any) -> DataSource:
    return DataSource(name="corpus", path=str(path), **known)


@pytest.mark.parametrize("pin", ["hash", "stat"])
def test_data_is_read_where_it_lies_and_never_copied(make_bench: MakeBench, tmp_path: Path, pin: str) -> None:
    place = corpus(tmp_path / "far away")
    bench = make_bench(READ, SCORE_STDOUT, trial=COMMAND, data=(source(place, pin=pin),))
    assert bench.measure().score == 7
    assert not list(bench.task.root.rglob("part"))


def test_a_function_sees_data_and_a_reader_that_is_not_named_sees_none(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    recipe = "import os\ndef solve(asked):\n    return os.path.exists('/data/corpus/part')\n"
    evaluate = """
        import os
        def score(asked):
            return {"score": 2 * asked["trial"]["answer"] + os.path.exists("/data/corpus/part")}
    """
    place = corpus(tmp_path / "data")
    for readers, seen in ((("trial",), 2), (("evaluator",), 1), (("trial", "evaluator"), 3)):
        assert make_bench(recipe, evaluate, data=(source(place, readers=readers),)).measure().score == seen


@pytest.mark.soak
def test_data_is_found_by_a_variable_and_in_the_tasks_own_folder(
    make_bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_DATA", str(corpus(tmp_path / "data" / "text").parent))
    bench = make_bench(READ, SCORE_STDOUT, trial=COMMAND, data=(source("$OUR_DATA/text"),))
    assert bench.measure().score == 7
    own = make_bench(READ, SCORE_STDOUT, trial=COMMAND, data=(source("tiny"),), files={"tiny/part": "3"})
    assert own.measure().score == 3


@pytest.mark.parametrize("pin", ["hash", "stat"])
def test_data_that_changed_voids_the_trial(make_bench: MakeBench, tmp_path: Path, pin: str) -> None:
    place = corpus(tmp_path / "data")
    bench = make_bench(READ, SCORE_STDOUT, trial=COMMAND, data=(source(place, pin=pin),))
    corpus(place, "9000")
    failed = bench.fail()
    assert failed.status is TrialStatus.INFRA_ERROR
    assert "the data corpus" in failed.reason
    assert "was changed: part" in failed.reason
    assert failed.score is None


def test_data_that_changes_while_it_is_used_voids_the_trial(make_bench: MakeBench, tmp_path: Path) -> None:
    place = corpus(tmp_path / "data")
    # It runs until it sees the change, whenever that comes.
    slow = "import sys, time\nwhile open('/data/corpus/part').read() == '7': time.sleep(0.01)\nprint(1)\n"
    bench = make_bench(slow, SCORE_STDOUT, trial=COMMAND, data=(source(place, pin="stat"),))
    change = threading.Timer(0.3, lambda: (place / "part").write_text("8 and more"))
    change.start()
    failed = bench.fail()
    change.join()
    assert failed.status is TrialStatus.INFRA_ERROR
    assert "was changed: part" in failed.reason


def test_a_hash_is_worked_out_once_and_again_for_other_content(tmp_path: Path) -> None:
    place, home = corpus(tmp_path / "data"), tmp_path / "home"
    first = pin_data(source(place), tmp_path, home)
    (record,) = (home / "data").iterdir()
    assert record.read_text() == first.sha256
    record.write_text("0" * 64)
    assert pin_data(source(place), tmp_path, home).sha256 == "0" * 64
    corpus(place, "another")
    second = pin_data(source(place), tmp_path, home)
    assert second.sha256 not in ("0" * 64, first.sha256)
    os.utime(place / "part", ns=(1, 1))
    second.check()
    second.check()
    state = (place / "part").stat()
    (place / "part").write_text("ANOTHER")
    os.utime(place / "part", ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(Changed):
        second.check()
    assert pin_data(source(place, pin="stat"), tmp_path, home).sha256 != second.sha256


def test_a_link_that_leads_out_of_the_data_is_refused(make_bench: MakeBench, tmp_path: Path) -> None:
    place = corpus(tmp_path / "data")
    (place / "same").symlink_to("part")
    make_bench(data=(source(place),))
    (place / "out").symlink_to(tmp_path)
    with pytest.raises(Missing, match="leads out of"):
        make_bench(data=(source(place),))


def test_everything_that_lacks_is_named_at_once(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_PLACE", raising=False)
    with pytest.raises(Missing) as missing:
        make_bench(
            trial=Program(argv=("{python}", "recipe.py"), python="/no/such/python"),
            data=(
                source("$NO_SUCH_PLACE/text", about="ask the librarian"),
                DataSource(name="more", path="/no/such/data"),
            ),
            slots=Slots(kind="gpu", names=("0",), devices=(("0", ("/dev/no-such-gpu",)),)),
        )
    for said in ("NO_SUCH_PLACE is not set", "no /no/such/data", "no Python at /no", "/dev/no-such-gpu"):
        assert said in str(missing.value)
    assert "ask the librarian" in (missing.value.hint or "")


@pytest.mark.soak
def test_a_trial_runs_with_the_python_and_packages_of_a_venv(make_bench: MakeBench, tmp_path: Path) -> None:
    place = tmp_path / "home of somebody" / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "seven.py").write_text("NUMBER = 7\n")
    trial = Program(argv=("{python}", "-B", "recipe.py"), python=str(place), bounds=BOUNDS)
    bench = make_bench("import seven\nprint(seven.NUMBER)\n", SCORE_STDOUT, trial=trial)
    assert bench.measure().score == 7
    assert str(place) in bench.meter.environment_facts()["environments"]
    (packages / "seven.py").write_text("NUMBER = 9000\n")
    assert "the environment" in bench.fail().reason
    assert find_python(str(place)).program == place / "bin" / "python"


def test_a_trial_and_its_application_have_budgets_of_their_own(make_bench: MakeBench) -> None:
    train = "import sys, pathlib\npathlib.Path(sys.argv[1], 'predict.py').write_text('print(6)')\n"
    trial = Program(argv=(*PYTHON, "recipe.py", "{out}"), bounds=BOUNDS)
    apply = Program(argv=(*PYTHON, "predict.py"), bounds=BOUNDS)
    evaluate = """
        import os
        def score(asked):
            trial = asked["trial"]
            assert os.listdir(trial["trained"]["out"]) == ["predict.py"]
            assert trial["trained"]["wall_ms"] > 0
            return {"score": float(open(trial["stdout"]).read())}
    """
    measured = make_bench(train, evaluate, trial=trial, apply=apply).measure()
    assert measured.score == 6
    assert len(measured.facts["trials"]) == 2


@pytest.mark.parametrize(
    ("program", "status"),
    [("recipe.py", TrialStatus.TRAIN_BUDGET_OVERRUN), ("predict.py", TrialStatus.EVAL_BUDGET_OVERRUN)],
)
def test_which_budget_was_overrun_is_in_the_status(
    make_bench: MakeBench, program: str, status: TrialStatus
) -> None:
    hang = "while True: pass"
    train = "import sys, pathlib\npathlib.Path(sys.argv[1], 'predict.py').write_text('while True: pass')\n"
    short = Bounds(wall_seconds=60, cpu_seconds=1)
    trial = Program(argv=(*PYTHON, "recipe.py", "{out}"), bounds=short)
    apply = Program(argv=(*PYTHON, "predict.py"), bounds=short)
    recipe = hang if program == "recipe.py" else train
    assert make_bench(recipe, SCORE_STDOUT, trial=trial, apply=apply).fail().status is status


def test_what_was_trained_sees_neither_the_checkout_nor_the_training_data(
    make_bench: MakeBench, tmp_path: Path
) -> None:
    place = corpus(tmp_path / "data")
    train = """
        import json, os, pathlib, sys
        asked = json.load(sys.stdin)
        assert asked["question"] is None
        shown = [os.getcwd(), "/data/corpus"]
        code = f"import json, os, sys; print(json.load(sys.stdin)['question']['n'] + sum(map(os.path.exists, {shown})))"
        pathlib.Path(sys.argv[1], 'predict.py').write_text(code)
    """
    evaluate = "def prepare(asked):\n    return {'n': 5}\n" + SCORE_STDOUT
    bench = make_bench(
        train,
        evaluate,
        trial=Program(argv=(*PYTHON, "recipe.py", "{out}"), bounds=BOUNDS),
        apply=Program(argv=(*PYTHON, "predict.py"), bounds=BOUNDS),
        evaluator=scored_by(prepare="prepare"),
        data=(source(place),),
    )
    assert bench.measure().score == 5


@pytest.fixture
def node() -> Iterator[Path]:
    """A device node that every user may reach and use."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    with tempfile.TemporaryDirectory(prefix="ratchet-test-", dir="/tmp") as place:
        Path(place).chmod(0o755)
        path = Path(place) / "gpu"
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("this machine lets no device nodes be made")
        path.chmod(0o666)
        yield path


def test_a_trial_counts_the_devices_of_its_slot_and_no_others(make_bench: MakeBench, node: Path) -> None:
    other = node.with_name("other")
    os.mknod(other, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    count = f"import os\nprint(sum(map(os.path.exists, [{str(node)!r}, {str(other)!r}])))\n"
    slots = Slots(kind="gpu", names=("0",), devices=(("0", (str(node),)),))
    measured = make_bench(count, SCORE_STDOUT, trial=COMMAND, slots=slots).measure()
    assert (measured.score, measured.facts["slot"]) == (1, "0")


def test_a_device_that_disappears_voids_the_trial(make_bench: MakeBench, node: Path) -> None:
    slots = Slots(kind="gpu", names=("0",), devices=(("0", (str(node),)),))
    bench = make_bench("print(1)\n", SCORE_STDOUT, trial=COMMAND, slots=slots)
    assert bench.measure().score == 1
    node.unlink()
    failed = bench.fail()
    assert failed.status is TrialStatus.INFRA_ERROR
    assert f"{node}: No such file" in failed.reason


def test_gpus_are_found_by_number_and_by_uuid(tmp_path: Path) -> None:
    machine, driver = tmp_path / "dev", tmp_path / "gpus"
    assert "neither" in gpus("0", machine=machine, driver=driver).problem
    machine.mkdir()
    (machine / "nvidiactl").touch()
    (machine / "nvidia-uvm").touch()
    for number, uuid in (("0", "GPU-aa"), ("1", "GPU-bb")):
        (driver / number).mkdir(parents=True)
        (driver / number / "information").write_text(
            f"Model: X\nGPU UUID: \t {uuid}\nDevice Minor: \t {number}\n"
        )
    for name in ("1", "GPU-bb"):
        slot = gpus(name, machine=machine, driver=driver)
        assert [path.name for path in slot.devices] == ["nvidia1", "nvidiactl", "nvidia-uvm"]
        assert slot.environment == {"CUDA_VISIBLE_DEVICES": "GPU-bb"}
    (machine / "nvidiactl").unlink()
    (machine / "kfd").touch()
    slot = gpus("2,3", machine=machine, driver=driver)
    assert [path.name for path in slot.devices] == ["renderD130", "renderD131", "kfd"]
    assert slot.environment["ROCR_VISIBLE_DEVICES"] == "0,1"


ENGINE = """#!/bin/sh
case $1 in
  create) echo container-1 ;;
  inspect) echo sha256:0123 ;;
  export) tar -c -C "$IMAGE_ROOT" . ;;
  rm) ;;
esac
"""


def test_a_trial_runs_in_the_files_of_an_image(
    make_bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, tools = tmp_path / "image", tmp_path / "tools"
    (root / "opt" / "ours").mkdir(parents=True)
    (root / "opt" / "ours" / "number").write_text("8")
    tools.mkdir()
    (tools / "podman").write_text(ENGINE)
    (tools / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("IMAGE_ROOT", str(root))
    trial = Program(argv=("cat", "/opt/ours/number"), image="ours:1", bounds=BOUNDS)
    assert make_bench("x = 1\n", SCORE_STDOUT, trial=trial).measure().score == 8
    shutil.rmtree(root)
    assert make_bench("x = 1\n", SCORE_STDOUT, trial=trial).measure().score == 8


def test_an_image_without_a_tool_for_images_is_refused(
    make_bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_bench().task
    task.trial = Program(argv=("true",), image="ours:2", bounds=BOUNDS)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="needs podman or docker, and this machine has neither"):
        Machine(task, tmp_path / "home")
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'cannot connect to the daemon' >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(Missing, match="docker create: cannot connect to the daemon"):
        Machine(task, tmp_path / "home")


def test_a_machine_that_lacks_nothing_pins_nothing(make_bench: MakeBench, tmp_path: Path) -> None:
    assert Machine(make_bench().task, tmp_path / "home").pinned() == ()
