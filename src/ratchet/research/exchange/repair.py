"""Mending a row whose cells after the hypothesis have run together.

That happens to a hypothesis with a line end in it when something turns the tabs after it into spaces. tree.tsv knows
where the hypothesis ends and how the trial ended; the rest of the line must agree with it. A number that could belong
to two columns is given to none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.research.exchange.layout import Layout
from ratchet.research.exchange.numbers import read_number
from ratchet.research.exchange.tree_file import TreeRow

_JOB = re.compile(r"[\w.]+-[\w.]*-\d{4}", re.ASCII)
_SNAPSHOT = "snapshots/"


class Irreparable(Exception):
    """Why a row cannot be mended."""


@dataclass(frozen=True, slots=True)
class Repaired:
    cells: tuple[str, ...]
    how: str


def repair(cells: Sequence[str], layout: Layout, witness: TreeRow | None) -> Repaired:
    """All cells of a row of which only those before the hypothesis came out. Raises `Irreparable`."""
    place = layout.places.get("hypothesis")
    width = f"it has {len(cells)} columns, the header {len(layout.columns)}"
    if place is None or not place < len(cells) < len(layout.columns):
        raise Irreparable(width)
    if witness is None:
        raise Irreparable(f"{width}, and tree.tsv does not have the row")
    text = "\t".join(cells[place:])
    end = _end_of(witness.hypothesis, text)
    if end is None:
        raise Irreparable(f"{width}, and its hypothesis is another than in tree.tsv")
    whole = dict.fromkeys(layout.columns, "") | dict(zip(layout.columns, cells[:place], strict=False))
    whole |= {
        "hypothesis": text[:end],
        "status": witness.status,
        layout.score: witness.score,
        "delta_vs_best": witness.delta,
    }
    rest = text[end:]
    if not rest.split():
        return _mended(whole, layout, "the columns after the hypothesis are gone; taken from tree.tsv")
    after = layout.columns[place + 1 :]
    aligned = _aligned(rest, after, layout, witness)
    if aligned is not None:
        return _mended(whole | aligned, layout, "columns that had run together were told apart by tree.tsv")
    found, lost = _tokens(rest, after, layout, witness)
    how = "columns that had run together were told apart by tree.tsv"
    return _mended(whole | found, layout, f"{how}; nothing tells the values of {lost}" if lost else how)


def _mended(whole: dict[str, str], layout: Layout, how: str) -> Repaired:
    return Repaired(tuple(whole[name] for name in layout.columns), how)


def _end_of(hypothesis: str, text: str) -> int | None:
    """Where `text` goes on after the hypothesis, whatever became of the spaces in either; nothing if it differs."""
    at = 0
    for character in hypothesis:
        if character.isspace():
            continue
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text) or text[at] != character:
            return None
        at += 1
    return at


def _aligned(rest: str, after: Sequence[str], layout: Layout, witness: TreeRow) -> dict[str, str] | None:
    """One space for each tab, or still a tab: the columns in order, if all that is known of them fits."""
    parts = rest[1:].split(rest[0], len(after) - 1)
    if len(parts) != len(after):
        return None
    found = dict(zip(after, parts, strict=True))
    known = {"status": witness.status, layout.score: witness.score, "delta_vs_best": witness.delta}
    numbers = (found[name] for name in layout.measured if name in found)
    fits = (
        all(found.get(name, value) == value for name, value in known.items())
        and all(text == "" or read_number(text) is not None for text in numbers)
        and (_JOB.fullmatch(found.get("job_name", "")) is not None or not found.get("job_name"))
        and (not found.get("snapshot_path") or found["snapshot_path"].startswith(_SNAPSHOT))
    )
    return found if fits else None


def _tokens(rest: str, after: Sequence[str], layout: Layout, witness: TreeRow) -> tuple[dict[str, str], str]:
    """Any number of spaces for any number of tabs: what can be told for certain, and the columns that cannot."""
    tokens = rest.split()
    status = _status_place(tokens, witness)
    found = {"expected_delta": " ".join(tokens[:status])} if "expected_delta" in after else {}
    numeric = [
        name for name in after if name == layout.score or name in layout.measured or name == "delta_vs_best"
    ]
    present = [name for name in numeric if not _is_empty(name, layout, witness)]
    tokens = tokens[status + 1 :]
    count = next(
        (at for at, token in enumerate(tokens[: len(present)]) if read_number(token) is None),
        min(len(tokens), len(present)),
    )
    numbers, tokens = tokens[:count], tokens[count:]
    certain = [name for name in present if name in (layout.score, "delta_vs_best")]
    names = present if count == len(present) else certain if count == len(certain) else []
    values = dict(zip(names, numbers, strict=True)) if names else {}
    agrees = all(values.get(name, told) == told for name, told in _told(layout, witness).items())
    if not agrees:
        values, names = {}, []
    lost = "" if names or not numbers else ", ".join(name for name in present if name not in certain)
    found |= values
    for column, fits in (("job_name", _JOB.fullmatch), ("snapshot_path", _is_snapshot)):
        if column in after and tokens and fits(tokens[0]):
            found[column] = tokens.pop(0)
    if "notes" in after:
        found["notes"] = " ".join(tokens)
    return found, lost


def _status_place(tokens: Sequence[str], witness: TreeRow) -> int:
    """Where the status stands among the tokens: followed by the score, if there is one. Raises `Irreparable`."""
    for at, token in enumerate(tokens):
        if token == witness.status and (not witness.score or tokens[at + 1 : at + 2] == [witness.score]):
            return at
    raise Irreparable(
        f"what is left of it does not agree with tree.tsv, which says {witness.status} {witness.score}".rstrip()
    )


def _told(layout: Layout, witness: TreeRow) -> dict[str, str]:
    told = {layout.score: witness.score, "delta_vs_best": witness.delta}
    return {name: text for name, text in told.items() if text}


def _is_empty(name: str, layout: Layout, witness: TreeRow) -> bool:
    return name in (layout.score, "delta_vs_best") and name not in _told(layout, witness)


def _is_snapshot(token: str) -> bool:
    return token.startswith(_SNAPSHOT)
