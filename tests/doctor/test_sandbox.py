from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ratchet.doctor import Check, sandbox_layers
from tests.doctor.conftest import Programs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's")

LAYERS = [
    "user namespace",
    "network namespace",
    "mount namespace",
    "pid namespace",
    "landlock",
    "seccomp filter",
    "overlayfs",
    "bubblewrap",
    "cgroup memory",
]


def layer(name: str, checks: list[Check]) -> Check:
    return next(each for each in checks if each.name == f"sandbox {name}")


def test_each_layer_is_tried_and_a_refused_one_tells_how_to_mend_it(programs: Programs) -> None:
    checks = sandbox_layers(programs.path)
    assert [each.name for each in checks] == [f"sandbox {name}" for name in LAYERS]
    assert all((each.mend is None) == (each.status == "ok") for each in checks)
    assert "fail" not in {each.status for each in checks}


def test_a_trial_leaves_this_process_and_the_disk_as_they_were(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))

    def state() -> tuple[list[str], str]:
        spaces = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("user", "net", "mnt", "pid")]
        return spaces, Path("/proc/self/mounts").read_text()

    before = state()
    sandbox_layers(programs.path)
    assert state() == before
    assert list(scratch.iterdir()) == []


def test_bubblewrap_must_be_able_to_start(programs: Programs) -> None:
    programs.add("bwrap", '[ "$1" = --version ] && echo bubblewrap 0.8 || { echo "no namespaces"; exit 1; }')
    check = layer("bubblewrap", sandbox_layers(programs.path))
    assert check.status == "warn"
    assert check.detail.endswith("cannot start: no namespaces")
    programs.add("bwrap", "echo bubblewrap 0.8")
    assert layer("bubblewrap", sandbox_layers(programs.path)).status == "ok"


def fake_process(directory: Path, controllers: str) -> tuple[Path, Path]:
    """A /proc/self whose cgroup v2 is an ordinary directory."""
    group = directory / "cgroup" / "mine"
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text(controllers)
    process = directory / "self"
    process.mkdir()
    (process / "mounts").write_text(f"cgroup2 {directory}/cgroup cgroup2 rw 0 0\n")
    (process / "cgroup").write_text("1:cpu:/x\n0::/mine\n")
    return process, group


def test_a_group_without_the_memory_controller_says_what_it_offers(
    programs: Programs, tmp_path: Path
) -> None:
    process, group = fake_process(tmp_path, "cpu pids\n")
    check = layer("cgroup memory", sandbox_layers(programs.path, process))
    assert (check.status, check.detail) == ("warn", f"{group} offers only cpu pids")


def test_a_group_that_does_not_delegate_memory_is_a_warning_and_left_clean(
    programs: Programs, tmp_path: Path
) -> None:
    process, group = fake_process(tmp_path, "memory\n")
    check = layer("cgroup memory", sandbox_layers(programs.path, process))
    assert (check.status, "does not hand" in check.detail) == ("warn", True)
    assert [each.name for each in group.iterdir()] == ["cgroup.controllers"]


def test_a_process_in_no_cgroup_v2_is_a_warning(programs: Programs, tmp_path: Path) -> None:
    process, _ = fake_process(tmp_path, "memory")
    (process / "mounts").write_text("")
    check = layer("cgroup memory", sandbox_layers(programs.path, process))
    assert (check.status, check.detail) == ("warn", "this process is in no cgroup v2")
