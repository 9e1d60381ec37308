"""The strict rule over imported rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import Direction, Misuse
from ratchet.research.exchange import read_state, replay
from tests.research.exchange.boards import CIFAR, NC, PG, small_board


@pytest.mark.parametrize(("columns", "lower"), [(PG, True), (CIFAR, True), (NC, False)])
def test_a_history_that_followed_the_rule_agrees_with_it(
    tmp_path: Path, columns: tuple[str, ...], lower: bool
) -> None:
    decided = replay(read_state(small_board(columns, lower=lower).write(tmp_path / "s")))

    assert decided.agrees
    assert decided.kept == (1, 4)
    assert decided.best == 4


@pytest.mark.parametrize(
    ("number", "column", "found", "expected"),
    [
        (3, "status", "keep", "discard"),
        (4, "status", "discard", "keep"),
        (4, "delta_vs_best", "-0.010001", "-0.010000"),
        (5, "baseline_exp", "001", "004"),
        (6, "delta_vs_best", "+0.100000", ""),
        (4, "snapshot_path", "snapshots/999_opt", "snapshots/004_opt"),
    ],
)
def test_every_cell_that_the_rule_does_not_give_is_told(
    tmp_path: Path, number: int, column: str, found: str, expected: str
) -> None:
    board = small_board()
    board.rows[number][column] = found

    decided = replay(read_state(board.write(tmp_path / "s"), direction=Direction.MIN))

    told = {(each.exp_id, each.column, each.found, each.expected) for each in decided.mismatches}
    assert (f"{number:03}", column, found, expected) in told


def test_a_missing_row_is_told(tmp_path: Path) -> None:
    board = small_board()
    del board.rows[1]

    decided = replay(read_state(board.write(tmp_path / "s")))

    assert ("002", "exp_id") in {(each.exp_id, each.column) for each in decided.mismatches}
    assert not decided.agrees


def test_only_the_strict_rule_can_be_replayed(tmp_path: Path) -> None:
    imported = read_state(small_board().write(tmp_path / "s"))

    with pytest.raises(Misuse, match="'confident'"):
        replay(imported, policy="confident")
