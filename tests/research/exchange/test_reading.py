"""Reading state directories: whole ones, damaged ones, and such as mean ill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.kernel import Direction, Misuse, TrialStatus
from ratchet.research.exchange import ImportedState, RemarkKind, read_state
from ratchet.research.exchange.tsv import MOST_BYTES
from tests.research.exchange.boards import CIFAR, NC, PG, Board, small_board


def said(imported: ImportedState, kind: RemarkKind) -> list[str]:
    return [str(remark) for remark in imported.remarks if remark.kind is kind]


def rewrite(state: Path, change: tuple[str, str], file: str = "results.tsv") -> None:
    path = state / "blackboard" / file
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change, 1), newline="")


@pytest.mark.parametrize(("columns", "lower"), [(PG, True), (CIFAR, True), (NC, False)])
def test_the_score_is_the_column_after_the_status_whatever_the_task(
    tmp_path: Path, columns: tuple[str, ...], lower: bool
) -> None:
    imported = read_state(small_board(columns, lower=lower).write(tmp_path / "s"))

    assert imported.layout.columns == columns
    assert imported.layout.score == columns[9]
    assert imported.direction is (Direction.MIN if lower else Direction.MAX)
    assert [row.status.value for row in imported.rows] == [
        "baseline",
        "keep",
        "crash",
        "discard",
        "keep",
        "discard",
        "size_blocked",
    ]
    assert said(imported, RemarkKind.REJECTED) == said(imported, RemarkKind.REPAIRED) == []


def test_a_state_root_its_blackboard_and_a_bare_directory_are_the_same(tmp_path: Path) -> None:
    state = small_board().write(tmp_path / "s")

    assert read_state(state).rows == read_state(state / "blackboard").rows


@pytest.mark.parametrize("written", ["exp_001", "001", "1", " exp_1 "])
def test_parents_are_known_however_they_are_written(tmp_path: Path, written: str) -> None:
    board = small_board()
    board.add(1.0, written)

    row = read_state(board.write(tmp_path / "s")).rows[-1]

    assert row.parent == 1
    assert row.cells[3] == "001"


def damaged(state: Path, board: Board, number: int) -> None:
    """What became of rows with a line end in the hypothesis: every tab after it is a space."""
    path = state / "blackboard" / "results.tsv"
    line = next(row for row in board.rows if row["exp_id"] == f"{number:03}")
    first, _, second = line["hypothesis"].partition("\n")
    leading = "\t".join(line[name] for name in PG[:6])
    trailing = " ".join(line[name] for name in PG[7:] if line[name])
    doubled = second.replace('"', '""')
    broken = f'{leading}\t"{first}\n{doubled}" {trailing}\n'
    rows = [each for each in board.rows if each is not line]
    others = Board(PG, rows=rows).results().split("\n", 1)[1].splitlines(keepends=True)
    at = next(index for index, text in enumerate(others) if text.startswith(f"{number + 1:03}\t"))
    path.write_text(
        Board(PG, rows=[]).results() + "".join(others[:at]) + broken + "".join(others[at:]), newline=""
    )


LEAKED = 'Lower the rate</hypothesis>\n<parameter name="notes">since exp_001 "overshot"'


@pytest.mark.parametrize(
    ("score", "status"), [(1.0, None), (1.5, None), (None, "crash"), (1.01, "size_blocked")]
)
def test_a_row_that_leaked_markup_broke_is_repaired_from_the_tree(
    tmp_path: Path, score: float | None, status: str | None
) -> None:
    board = Board(PG)
    board.baseline(1.08)
    board.add(1.07)
    board.add(score, "001", status=status, hypothesis=LEAKED, notes="ran well")
    board.add(1.06)
    whole = read_state(board.write(tmp_path / "whole"))
    damaged(board.write(tmp_path / "broken"), board, 2)

    imported = read_state(tmp_path / "broken")

    assert [row.cells for row in imported.rows] == [row.cells for row in whole.rows]
    row = imported.rows[2]
    assert (row.hypothesis, row.notes) == ("Lower the rate", "ran well")
    assert "</hypothesis>" in str(row.raw)
    [repair] = said(imported, RemarkKind.REPAIRED)
    assert repair.startswith("results.tsv:4: repaired 002: ")
    assert said(imported, RemarkKind.REJECTED) == []


@pytest.mark.parametrize("lines", [1, 2, 3])
@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("gap", [" ", "   ", "\t"])
def test_it_is_repaired_however_the_line_was_spoiled(
    tmp_path: Path, lines: int, quoted: bool, gap: str
) -> None:
    board = Board(PG)
    board.baseline(1.08)
    board.add(1.07, hypothesis=f"Lower .item{' '.join(LEAKED.split(chr(10)))}", notes="2 of 3 ran")
    board.add(1.06)
    state = board.write(tmp_path / "s")
    row = board.rows[1]
    text = row["hypothesis"].replace(" .item", "\n" * (lines - 1) + ".item" if lines > 1 else ".item")
    text = '"' + text.replace('"', '""') + '"' if quoted else text
    spoiled = "\t".join(row[name] for name in PG[:6]) + f"\t{text} " + gap.join(row[name] for name in PG[7:])
    results = state / "blackboard" / "results.tsv"
    first, _, third = Board(PG, rows=[board.rows[0], board.rows[2]]).results().rpartition("\n002")
    results.write_text(f"{first}\n{spoiled}\n002{third}", newline="")

    imported = read_state(state)

    assert [each.number for each in imported.rows] == [0, 1, 2]
    cells = imported.layout.named(imported.rows[1].cells)
    assert {name: cells[name] for name in PG if name != "hypothesis"} == {
        name: row[name] for name in PG if name != "hypothesis"
    }
    assert imported.rows[1].hypothesis.endswith("Lower the rate")


def test_numbers_that_could_belong_to_two_columns_are_given_to_none(tmp_path: Path) -> None:
    board = Board(PG)
    board.baseline(1.08)
    board.add(1.07, hypothesis=LEAKED, eval_s="", total_s="")
    board.add(1.06)
    damaged(board.write(tmp_path / "s"), board, 1)

    imported = read_state(tmp_path / "s")

    cells = imported.layout.named(imported.rows[1].cells)
    assert (cells["status"], cells["val_bpb"], cells["delta_vs_best"]) == ("keep", "1.070000", "-0.010000")
    assert (cells["artifact_bytes"], cells["train_s"]) == ("", "")
    assert cells["job_name"] == "apg-opt-0008"
    assert "artifact_bytes, train_s, eval_s, total_s" in said(imported, RemarkKind.REPAIRED)[0]


def test_notes_that_leaked_are_notes_when_there_are_no_others(tmp_path: Path) -> None:
    board = Board(PG)
    board.baseline(1.08)
    board.add(1.07, hypothesis=LEAKED)

    imported = read_state(board.write(tmp_path / "s"))

    assert imported.rows[1].hypothesis == "Lower the rate"
    assert imported.rows[1].notes == 'since exp_001 "overshot"'
    assert imported.rows[1].cells[6] == LEAKED


@pytest.mark.parametrize("loss", ["absent", "another row", "another ending"])
def test_a_broken_row_without_a_witness_is_rejected_with_its_line(tmp_path: Path, loss: str) -> None:
    board = Board(PG)
    board.baseline(1.08)
    board.add(1.07, hypothesis=LEAKED)
    board.add(1.06)
    damaged(board.write(tmp_path / "s"), board, 1)
    tree = tmp_path / "s" / "blackboard" / "tree.tsv"
    if loss == "absent":
        tree.unlink()
    else:
        old, new = ("Lower the rate", "Raise it") if loss == "another row" else ("keep", "discard")
        tree.write_text(tree.read_text().replace(old, new))

    imported = read_state(tmp_path / "s", direction=Direction.MIN)

    assert [row.number for row in imported.rows] == [0, 2]
    [rejected] = said(imported, RemarkKind.REJECTED)
    assert rejected.startswith("results.tsv:3: rejected")


def test_a_quote_that_is_never_closed_takes_no_other_row_with_it(tmp_path: Path) -> None:
    state = small_board().write(tmp_path / "s")
    whole = read_state(state)
    rewrite(state, ("\topt\ta change", '\topt\t"a change'))

    repaired = read_state(state)
    (state / "blackboard" / "tree.tsv").unlink()
    rejected = read_state(state)

    assert [row.cells for row in repaired.rows] == [row.cells for row in whole.rows]
    assert [row.number for row in rejected.rows] == [0, 2, 3, 4, 5, 6]
    assert len(said(repaired, RemarkKind.REPAIRED)) == len(said(rejected, RemarkKind.REJECTED)) == 1


@pytest.mark.parametrize("score", ["nan", "inf", "-inf", "1e999", "1,5", "0x1p3", "1_000", "\u0661", "good"])
def test_a_score_that_is_no_finite_number_is_refused(tmp_path: Path, score: str) -> None:
    state = small_board().write(tmp_path / "s")
    rewrite(state, ("keep\t1.070000", f"keep\t{score}"))

    imported = read_state(state)

    assert 1 not in {row.number for row in imported.rows}
    assert f"its val_bpb is {score!r}" in said(imported, RemarkKind.REJECTED)[0]


def test_a_number_beside_the_score_is_refused_and_its_row_is_kept(tmp_path: Path) -> None:
    state = small_board().write(tmp_path / "s")
    rewrite(state, ("15900000", "nan"))

    imported = read_state(state)

    assert len(imported.rows) == 7
    assert "results.tsv:3: warning 001: its artifact_bytes is 'nan', no finite number" in said(
        imported, RemarkKind.WARNING
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("\n001\t", "\nabc\t"), "'abc' is no exp_id"),
        (("\n001\t", "\n-1\t"), "'-1' is no exp_id"),
        (("\n001\t", "\n99999999\t"), "'99999999' is no exp_id"),
        (("\n003\t", "\n001\t"), "exp_id 001 is on line 3 already"),
        (("\tkeep\t", "\tkept\t"), "'kept' is no status"),
        (("\tkeep\t1.070000", "\tkeep\t"), "it is keep, but has no val_bpb"),
        (("-0.010000", "-0.01x"), "its delta_vs_best is '-0.01x'"),
        (("a change", "a\tchange"), "it has 19 columns, the header 18"),
    ],
)
def test_a_row_that_makes_no_sense_is_rejected_and_the_others_stay(
    tmp_path: Path, change: tuple[str, str], reason: str
) -> None:
    state = small_board().write(tmp_path / "s")
    rewrite(state, change)

    imported = read_state(state)

    assert len(imported.rows) == 6
    assert reason in said(imported, RemarkKind.REJECTED)[0]


def test_a_gap_in_the_numbers_is_told(tmp_path: Path) -> None:
    board = small_board()
    del board.rows[2]

    warnings = said(read_state(board.write(tmp_path / "s")), RemarkKind.WARNING)

    assert any("exp_id 003 is where 002 should be" in warning for warning in warnings)


def test_parents_that_lead_in_a_circle_are_told(tmp_path: Path) -> None:
    board = small_board()
    board.rows[1]["parent_exp"] = "004"
    board.rows[3]["parent_exp"] = "003"
    board.rows[5]["parent_exp"] = "the second one"

    warnings = said(read_state(board.write(tmp_path / "s")), RemarkKind.WARNING)

    assert any("its parent 004 came after it" in warning for warning in warnings)
    assert any("its parent 003 came after it" in warning for warning in warnings)
    assert any("its parent 'the second one' is no row" in warning for warning in warnings)


def test_hostile_lines_are_rejected_and_their_neighbours_read(tmp_path: Path) -> None:
    state = small_board().write(tmp_path / "s")
    path = state / "blackboard" / "results.tsv"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"a change", b"a \0 change")
    lines[3] = lines[3].replace(b"boom", b"\xff\xfe")
    lines[4] = lines[4].replace(b"a change", b"x" * (MOST_BYTES + 1))
    path.write_bytes(b"".join(lines))

    imported = read_state(state)

    assert [row.number for row in imported.rows] == [0, 4, 5, 6]
    nul, utf8, long = said(imported, RemarkKind.REJECTED)
    assert nul == "results.tsv:3: rejected: there are NUL bytes in it"
    assert utf8.startswith("results.tsv:4: rejected: byte ")
    assert utf8.endswith("is not UTF-8")
    assert long == f"results.tsv:5: rejected: the line has more than {MOST_BYTES} bytes"


def test_lines_may_end_as_they_do_on_windows(tmp_path: Path) -> None:
    state = small_board().write(tmp_path / "s")
    path = state / "blackboard" / "results.tsv"
    before = read_state(state).rows
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))

    assert read_state(state).rows == before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no column exp_id and none status"),
        ("exp_id\tnotes\n", "names no column status"),
        ("exp_id\tstatus\n", "no column for the score"),
        ("exp_id\tstatus\tdelta_vs_best\n", "no column for the score"),
        ("exp_id\tstatus\ta\ta\n", "has a column twice"),
        ("\t".join(map(str, range(1000))), "too many"),
        ("exp_id\tstatus\tscore\n", "no row to import"),
        ("exp_id\tstatus\tscore\n000\tbaseline\tnan\n", "its score is 'nan'"),
    ],
)
def test_a_file_that_is_no_results_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "results.tsv").write_text(text)

    with pytest.raises(Misuse, match=reason):
        read_state(tmp_path, direction=Direction.MIN)


@pytest.mark.parametrize("kind", ["missing", "link", "directory", "pipe"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, kind: str) -> None:
    board = small_board().write(tmp_path / "s") / "blackboard"
    real = (board / "results.tsv").rename(tmp_path / "elsewhere")
    if kind == "link":
        (board / "results.tsv").symlink_to(real)
    elif kind == "directory":
        (board / "results.tsv").mkdir()
    elif kind == "pipe":
        os.mkfifo(board / "results.tsv")

    with pytest.raises(Misuse, match=r"symbolic link|not a plain file|no results\.tsv"):
        read_state(tmp_path / "s")


def test_a_blackboard_that_is_a_link_is_refused(tmp_path: Path) -> None:
    small_board().write(tmp_path / "s")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "blackboard").symlink_to(tmp_path / "s" / "blackboard")

    with pytest.raises(Misuse, match="symbolic link"):
        read_state(tmp_path / "t")


def test_the_other_files_may_be_absent_or_nonsense(tmp_path: Path) -> None:
    board = small_board().write(tmp_path / "s") / "blackboard"
    whole = read_state(board)
    (board / "best.json").write_text("[" * 100_000)
    (board / "tree.tsv").write_bytes(b"\xff\n")
    (board / "KNOWLEDGE.md").symlink_to("/etc/hostname")

    imported = read_state(board)

    assert imported.rows == whole.rows
    assert imported.best is None
    assert {remark.file for remark in imported.remarks} == {"best.json", "tree.tsv", "KNOWLEDGE.md"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"exp_id": "001", "val_bpb": 1.07}', "names '001' as the best, but 004 was kept last"),
        ('{"exp_id": "004", "val_bpb": NaN}', "NaN is not a number"),
        ('{"exp_id": "004", "val_bpb": 1.2}', "gives 004 a val_bpb of 1.2"),
        ('{"exp_id": "004", "val_bpb": true}', "gives 004 a val_bpb of True"),
        ("[]", "names '' as the best"),
    ],
)
def test_a_best_that_contradicts_the_rows_is_told_and_not_believed(
    tmp_path: Path, text: str, told: str
) -> None:
    board = small_board().write(tmp_path / "s") / "blackboard"
    (board / "best.json").write_text(text)

    imported = read_state(board)

    assert imported.best is None
    assert any(told in warning for warning in said(imported, RemarkKind.WARNING))


def test_a_tree_that_contradicts_the_rows_is_told(tmp_path: Path) -> None:
    state = small_board().write(tmp_path / "s")
    rewrite(state, ("discard", "crash"), "tree.tsv")

    warnings = said(read_state(state), RemarkKind.WARNING)

    assert any("its status is 'discard', in tree.tsv 'crash'" in warning for warning in warnings)


def test_the_direction_must_be_told_where_the_rows_do_not_tell_it(tmp_path: Path) -> None:
    board = Board(("exp_id", "status", "speed"), rows=[{"exp_id": "000", "status": "baseline", "speed": "1"}])
    (tmp_path / "results.tsv").write_text(board.results())

    with pytest.raises(Misuse, match="higher or a lower speed"):
        read_state(tmp_path)
    assert read_state(tmp_path, direction=Direction.MAX).rows[0].status is TrialStatus.BASELINE


def test_keeps_that_contradict_each_other_tell_no_direction(tmp_path: Path) -> None:
    board = small_board()
    board.rows[4]["delta_vs_best"] = "+0.010000"

    with pytest.raises(Misuse, match="some better scores are higher and some lower"):
        read_state(board.write(tmp_path / "s"))


def test_discards_tell_the_direction_when_nothing_was_kept(tmp_path: Path) -> None:
    board = Board(NC, lower=False)
    board.baseline(0.3)
    board.add(0.2)
    board.columns = tuple("speed" if name == "core_metric" else name for name in NC)
    board.rows = [{("speed" if k == "core_metric" else k): v for k, v in row.items()} for row in board.rows]
    board.best = board.rows[0]

    assert read_state(board.write(tmp_path / "s")).direction is Direction.MAX


def test_key_insights_are_lessons(tmp_path: Path) -> None:
    board = small_board().write(tmp_path / "s") / "blackboard"
    (board / "KNOWLEDGE.md").write_text(
        "# Page\n- no lesson\n\n## Key Insights\n*(Add manually.)*\n\n"
        "- Warmup helps.\n  It always did.\n* Depth does not\n\nA paragraph\nof two lines\n\n1. Numbered\n"
    )

    assert read_state(board).lessons == (
        "Warmup helps.\nIt always did.",
        "Depth does not",
        "A paragraph\nof two lines",
        "Numbered",
    )


def test_unknown_columns_are_kept(tmp_path: Path) -> None:
    board = small_board((*PG, "mood", "beauty"))
    board.rows[1] |= {"mood": "glad", "beauty": "7.5"}

    imported = read_state(board.write(tmp_path / "s"))

    assert imported.layout.named(imported.rows[1].cells)["mood"] == "glad"
    assert imported.layout.measured[-2:] == ("mood", "beauty")
