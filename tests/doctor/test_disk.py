from __future__ import annotations

from pathlib import Path

from ratchet.doctor import disk

ENORMOUS = 2**62


def test_a_good_disk_is_told_with_its_free_space_and_left_clean(tmp_path: Path) -> None:
    space, writes = disk(tmp_path, warn_below=1, fail_below=1)
    assert (space.status, writes.status) == ("ok", "ok")
    assert "iB free" in space.detail
    assert list(tmp_path.iterdir()) == []


def test_little_space_is_a_warning_and_none_a_failure(tmp_path: Path) -> None:
    assert disk(tmp_path, warn_below=ENORMOUS, fail_below=1)[0].status == "warn"
    assert disk(tmp_path, warn_below=ENORMOUS, fail_below=ENORMOUS)[0].status == "fail"


def test_a_home_that_does_not_exist_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    assert str(tmp_path) in disk(tmp_path / "not" / "yet")[1].detail
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_takes_no_files_is_a_failure_with_a_way_out() -> None:
    _, writes = disk(Path("/proc/self"))  # not even root can write there
    assert writes.status == "fail"
    assert "RATCHET_HOME" in (writes.fix or "")
