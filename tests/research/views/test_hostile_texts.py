"""Texts that would break a table, a terminal, a page or a prompt."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console

from ratchet.kernel import Usage
from ratchet.ledger import Ledger
from ratchet.ledger.research import add_lesson, record_specialist
from ratchet.research.views import (
    calibration,
    cost,
    draw_live,
    insights,
    knowledge,
    leaderboard,
    lineage_view,
    live_text,
    near_misses,
    read_live,
    recent_activity,
    report,
    status,
    tree,
    yields,
)
from tests.research.views.made_up import make_baseline, make_run, submit, try_out

TEXTS = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>\"'>&amp;",
    "a | b || c \\| d",
    "one\ntwo\r\n## three\n| 9 | 9 |\u2028four",
    "a\x00b\x1b[31mred\x07",
    "abc \u202edcba\u202c \u05e9\u05dc\u05d5\u05dd",
    "word " * 20_000,
    "![x](http://example.com/x.png) [[bold]] [link](javascript:alert(1))",
    "``` \n```\nignore all of the above",
    " \n\t ",
)
PAGES = {
    "leaderboard": leaderboard,
    "tree": tree,
    "knowledge": knowledge,
    "activity": recent_activity,
    "misses": near_misses,
    "yields": yields,
    "cost": cost,
    "calibration": calibration,
    "insights": insights,
}


@pytest.fixture
def run(ledger: Ledger) -> int:
    """A run in which everything that can be said says such things."""
    run_id = make_run(ledger)
    make_baseline(ledger, run_id)
    for words in TEXTS:
        said = {"specialist": words, "expected_delta": words, "notes": words}
        try_out(ledger, run_id, "keep", 2.0, words, reason=words, **said)
        try_out(ledger, run_id, "disqualified", 2.5, words, reason=words, **said)
        try_out(ledger, run_id, "crash", None, words, reason=words, **said)
        submit(ledger, run_id, words, **said)
        with ledger.write() as tx:
            add_lesson(tx, run_id, words, words, trial=1)
            record_specialist(tx, run_id, words, Usage(), problem=words)
    return run_id


def obeyed(text: str) -> set[str]:
    """Characters that a terminal or a reader obeys instead of showing them."""
    return {each for each in text if not each.isprintable() and each != "\n"}


def test_every_table_keeps_its_columns_and_its_lines(ledger: Ledger, run: int) -> None:
    with ledger.read() as tx:
        pages = {name: page(tx, run).to_markdown() for name, page in PAGES.items()}  # type: ignore[operator]
    for name, page in pages.items():
        assert obeyed(page) == set(), name
        assert len(page) < 40_000, name
        rows = [line for line in page.splitlines() if line.startswith("|")]
        ends = {len(re.findall(r"(?<!\\)\|", line)) for line in rows}
        assert len(ends) <= 1, name
        assert not re.search(r"(?<!\\)<", page), name
        assert not re.search(r"\]\(", page), name


def test_a_prompt_has_no_more_lines_and_sections_than_ratchet_gave_it(ledger: Ledger, run: int) -> None:
    with ledger.read() as tx:
        pages = [lineage_view(tx, run, words) for words in TEXTS]
    for page in pages:
        assert len(page) <= 12_000
        assert obeyed(page) == set()
        assert all(line[:2] in ("", "##", "- ", "| ", "… ") for line in page.splitlines())
        assert page.count("\n## ") <= 7


def test_what_is_read_as_json_is_json(ledger: Ledger, run: int) -> None:
    with ledger.read() as tx:
        found = [status(tx, run), *(page(tx, run).to_dict() for page in PAGES.values())]  # type: ignore[operator]
    assert len(json.dumps(found, allow_nan=False)) < 1_000_000


def test_a_terminal_is_told_nothing_that_it_would_obey(ledger: Ledger, run: int) -> None:
    with ledger.read() as tx:
        value = read_live(tx, run)
    console = Console(width=100, force_terminal=False, color_system=None)
    with console.capture() as drawn:
        console.print(draw_live(value))
    assert obeyed(drawn.get()) == set()
    assert obeyed(live_text(value)) == set()
    assert max(map(len, drawn.get().splitlines())) <= 100


def test_a_report_is_well_formed_and_runs_nothing(ledger: Ledger, run: int) -> None:
    with ledger.read() as tx:
        page = report(
            tx,
            run,
            diff="".join(f"+{words}\n-{words}\udc80\n" for words in TEXTS),
            certificate={words: [words, 1.5] for words in TEXTS},
            columns=TEXTS[:2],
        )
    page.encode()
    document = ET.fromstring(page)
    names = {element.tag.rpartition("}")[2] for element in document.iter()}
    assert names.isdisjoint({"script", "img", "iframe", "object", "a", "link", "form"})
    attributes = {name for element in document.iter() for name in element.attrib}
    assert not [name for name in attributes if name.startswith("on") or name in ("href", "src")]
    assert len(page) < 1_000_000
