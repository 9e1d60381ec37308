"""What a task answers without being asked to say more."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.research.adapter import SizeCheck, Specialist, TaskAdapter


def task(root: Path, **said: object) -> TaskAdapter:
    return TaskAdapter(name="circle_packing", root=root, **said)  # type: ignore[arg-type]


def test_the_score_column_is_the_one_after_the_status(tmp_path: Path) -> None:
    columns = task(tmp_path, score_field="radii", columns=("train_s", "n")).tsv_columns
    place = columns.index("status")
    assert columns[place + 1 : place + 5] == ("radii", "train_s", "n", "delta_vs_best")
    assert len(set(columns)) == len(columns)


@pytest.mark.parametrize(
    ("prefix", "specialist", "name"),
    [
        ("", Specialist(name="opt"), "cir-opt-0068"),
        ("cif", Specialist(name="opt", domain="optimiser"), "cif-opti-0068"),
    ],
)
def test_a_job_is_named_after_task_domain_and_number(
    tmp_path: Path, prefix: str, specialist: Specialist, name: str
) -> None:
    assert task(tmp_path, job_prefix=prefix).job_name(specialist, 68) == name


@pytest.mark.parametrize(
    ("total", "limit", "verdict"),
    [(10**9, None, "ok"), (99, 100, "ok"), (100, 100, "warn"), (101, 100, "block"), (0, 100, "ok")],
)
def test_a_size_is_fine_near_the_limit_or_above_it(total: int, limit: int | None, verdict: str) -> None:
    assert SizeCheck(total_bytes=total, limit_bytes=limit).verdict == verdict


def test_the_size_of_a_candidate_is_that_of_the_paths_that_count(tmp_path: Path) -> None:
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / "src/a").write_bytes(b"12345")
    (tmp_path / "src/deep/b").write_bytes(b"123")
    (tmp_path / "other").write_bytes(b"1")
    found = task(tmp_path, recipe=("src", "other"), size_limit_bytes=8).size_check(tmp_path)
    assert (found.total_bytes, found.verdict) == (9, "block")
    only = task(tmp_path, recipe=("src", "other"), size_paths=("src/a", "absent"), size_limit_bytes=8)
    assert only.size_check(tmp_path).total_bytes == 5


def test_a_link_counts_as_itself(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "big").write_bytes(b"x" * 10_000)
    (tmp_path / "src/link").symlink_to(tmp_path / "big")
    (tmp_path / "whole").symlink_to("/")
    assert task(tmp_path, recipe=("src", "whole")).size_check(tmp_path).total_bytes < 1_000
