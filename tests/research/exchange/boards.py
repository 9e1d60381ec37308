"""State directories as the original writes them, made up for the tests."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HEAD = (
    "exp_id",
    "timestamp",
    "specialist",
    "parent_exp",
    "baseline_exp",
    "domain",
    "hypothesis",
    "expected_delta",
    "status",
)
PG = (
    *HEAD,
    "val_bpb",
    "delta_vs_best",
    "artifact_bytes",
    "train_s",
    "eval_s",
    "total_s",
    "job_name",
    "snapshot_path",
    "notes",
)
CIFAR = (
    *HEAD,
    "train_s",
    "accuracy",
    "acc_std",
    "n_seeds",
    "delta_vs_best",
    "total_s",
    "job_name",
    "snapshot_path",
    "notes",
)
NC = (
    *HEAD,
    "core_metric",
    "val_bpb",
    "delta_vs_best",
    "train_s",
    "total_s",
    "job_name",
    "snapshot_path",
    "notes",
)
MEASURED = {
    "accuracy": "0.960100",
    "acc_std": "0.000500",
    "n_seeds": "10",
    "artifact_bytes": "15900000",
    "train_s": "599.100000",
    "eval_s": "512.250000",
    "total_s": "1200.500000",
    "val_bpb": "0.812000",
}


@dataclass
class Board:
    """Rows that follow the strict rule, one `add` after the other, and the files that tell of them."""

    columns: Sequence[str] = PG
    lower: bool = True
    rows: list[dict[str, str]] = field(default_factory=list)
    best: dict[str, str] | None = None

    @property
    def score(self) -> str:
        return self.columns[len(HEAD)]

    def baseline(self, score: float) -> None:
        row = self._row("baseline", "", status="baseline", hypothesis="calibrated baseline")
        row |= {self.score: f"{score:.6f}"}
        self.rows.append(row)
        self.best = row

    def add(self, score: float | None, parent: str = "000", status: str | None = None, **cells: str) -> str:
        """A trial. With a `status` the evaluator did not accept it; else the rule decides. Its exp_id."""
        assert self.best is not None
        row = self._row("opt", parent, status=status or "", hypothesis="a change")
        row |= {name: text for name, text in MEASURED.items() if name in row and name != self.score}
        row |= {
            "job_name": f"apg-opt-{len(self.rows) + 7:04}",
            self.score: "" if score is None else f"{score:.6f}",
        }
        if status is None:
            assert score is not None
            delta = score - float(self.best[self.score])
            kept = delta < 0 if self.lower else delta > 0
            row |= {"status": "keep" if kept else "discard", "delta_vs_best": f"{delta:+.6f}"}
            if kept:
                row["snapshot_path"] = f"snapshots/{row['exp_id']}_{row['domain']}"
        row |= cells
        self.rows.append(row)
        if row["status"] == "keep":
            self.best = row
        return row["exp_id"]

    def write(self, place: Path) -> Path:
        """The files in `place`/blackboard; `place`."""
        board = place / "blackboard"
        board.mkdir(parents=True)
        (board / "results.tsv").write_text(self.results(), newline="")
        (board / "tree.tsv").write_text(self.tree(), newline="")
        if self.best is not None:
            (board / "best.json").write_text(json.dumps(self.best_record(), indent=2, ensure_ascii=False))
        return place

    def results(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def tree(self) -> str:
        names = (
            "exp_id",
            "parent_exp",
            "",
            "",
            "specialist",
            "status",
            self.score,
            "delta_vs_best",
            "hypothesis",
        )
        lines = ["exp_id\tparent_exp\tdepth\tpath\tspecialist\tstatus\t" + "\t".join(names[6:])]
        known = {row["exp_id"]: row for row in self.rows}
        ways: dict[str, str] = {}
        for row in self.rows:
            parent = row["parent_exp"].removeprefix("exp_")
            ways[row["exp_id"]] = f"{ways[parent]}/{row['exp_id']}" if parent in ways else row["exp_id"]
        for way in sorted(ways.values(), key=lambda each: each.split("/")):
            row = known[way.rpartition("/")[2]]
            cells = [row.get(name, "") for name in names]
            cells[2:4] = [str(way.count("/")), way]
            lines.append("\t".join(" ".join(cell.splitlines()).replace("\t", " ") for cell in cells))
        return "\n".join(lines) + "\n"

    def best_record(self) -> dict[str, object]:
        assert self.best is not None
        best = self.best
        return {
            "exp_id": best["exp_id"],
            "specialist": best["specialist"],
            "domain": best["domain"],
            "hypothesis": best["hypothesis"],
            self.score: float(best[self.score]),
            "delta_vs_prev": best["delta_vs_best"],
            "timestamp": best["timestamp"],
            "snapshot_path": best["snapshot_path"],
        }

    def _row(self, specialist: str, parent: str, **cells: str) -> dict[str, str]:
        number = len(self.rows)
        row = dict.fromkeys(self.columns, "") | {
            "exp_id": f"{number:03}",
            "timestamp": f"2026-04-28T{number // 60 % 24:02}:{number % 60:02}:17Z",
            "specialist": specialist,
            "parent_exp": parent,
            "baseline_exp": "" if self.best is None else self.best["exp_id"],
            "domain": specialist,
            "expected_delta": "-0.001",
        }
        return row | cells


def small_board(columns: Sequence[str] = PG, *, lower: bool = True) -> Board:
    """A baseline, two kept trials, a tie, a worse one and two that were never scored."""
    step = -0.01 if lower else 0.01
    board = Board(columns, lower=lower)
    board.baseline(1.08)
    board.add(1.08 + step)
    board.add(None, "001", status="crash", notes="boom | ValueError: no (recipe.py:3 in f)")
    board.add(1.08 + step, "001")
    board.add(1.08 + 2 * step, "001", hypothesis='a "quoted"\tand\nbroken | hypothesis')
    board.add(1.08, "004")
    board.add(1.08 + 5 * step, "004", status="size_blocked")
    return board


def files_of(directory: Path) -> Mapping[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}
