"""The report: one HTML file that needs nothing else."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from ratchet.kernel import Direction
from ratchet.ledger import Ledger
from ratchet.ledger.research import add_lesson
from ratchet.research.views import report
from ratchet.research.views.plot import Scale, shown_range
from tests.research.views.made_up import grow, make_baseline, make_run, try_out

SVG = "{http://www.w3.org/2000/svg}"


def read(ledger: Ledger, run_id: int, **given: object) -> str:
    with ledger.read() as tx:
        return report(tx, run_id, **given)  # type: ignore[arg-type]


def plot_of(page: str) -> ET.Element:
    return next(each for each in ET.fromstring(page).iter(f"{SVG}svg") if each.get("class") == "plot")


def marks(plot: ET.Element, name: str) -> list[ET.Element]:
    return [each for each in plot.iter() if each.get("class") == name]


@pytest.mark.parametrize("direction", list(Direction))
def test_a_report_has_every_part(ledger: Ledger, direction: Direction) -> None:
    run = make_run(ledger, direction)
    make_baseline(ledger, run, 10.0)
    sign = 1 if direction is Direction.MAX else -1
    try_out(ledger, run, "keep", 10 + sign, "wider", expected_delta="0.5", commit="abcdef0123456789")
    try_out(ledger, run, "size_blocked", 10 + sign * 2, "too wide", reason="17 MB of 16 MB")
    try_out(ledger, run, "discard", 10.0, "narrower")
    try_out(ledger, run, "crash")
    with ledger.write() as tx:
        add_lesson(tx, run, "opt", "Width helps")
    page = read(ledger, run, diff="+new line\n-old line", certificate={"p_value": 0.001})
    for words in ("wider", "17 MB of 16 MB", "Width helps", "+new line", "p_value", "abcdef0123"):
        assert words in page
    plot = plot_of(page)
    assert len(marks(plot, "keep")) == 1
    assert len(marks(plot, "discard")) == 1
    assert len(marks(plot, "failed-limit")) == 1
    assert len(marks(plot, "failed-crash")) == 1
    assert len(marks(plot, "band")) == 1
    assert len(marks(plot, "base-band")) == 1
    assert "All 5 rows are shown" in page


def test_a_better_score_is_higher_up_when_more_is_better_and_lower_when_less_is(ledger: Ledger) -> None:
    run = make_run(ledger, Direction.MIN)
    make_baseline(ledger, run, 10.0)
    try_out(ledger, run, "keep", 9.0)
    plot = plot_of(read(ledger, run))
    [kept], [first] = marks(plot, "keep"), marks(plot, "baseline")
    assert float(kept.attrib["cy"]) > float(first.attrib["cy"])


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_without_trials_has_a_report(ledger: Ledger, begun: bool) -> None:
    run = make_run(ledger)
    if begun:
        make_baseline(ledger, run)
    page = read(ledger, run)
    assert "Nothing was kept yet." in page
    assert "No near misses." in page
    ET.fromstring(page)


def test_a_report_loads_nothing(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    page = read(ledger, run)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {
        "http://www.w3.org/2000/svg"
    }  # a name, not an address
    assert "url(" not in page
    assert "default-src 'none'" in ET.fromstring(page).find("head/meta[2]").attrib["content"]  # type: ignore[union-attr]


def test_a_long_run_is_plotted_as_a_sample_that_says_so(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run)
    grow(ledger, run, 3000)
    page = read(ledger, run, points=200)
    assert "A sample: 200 of 3,001 rows, evenly picked by number" in page
    plot = plot_of(page)
    # The newest that were kept are all there, and of the older ones those that were picked.
    assert 300 < len(marks(plot, "keep")) < 320
    told = [each for each in plot.iter() if each.find(f"{SVG}title") is not None]
    assert 400 < len(told) <= 500


def test_a_wild_score_does_not_flatten_the_plot(ledger: Ledger) -> None:
    run = make_run(ledger)
    make_baseline(ledger, run, 1.0)
    for at in range(40):
        try_out(ledger, run, "discard", 1 + at / 100)
    try_out(ledger, run, "discard", -1e12)
    plot = plot_of(read(ledger, run))
    heights = [float(each.attrib["cy"]) for each in marks(plot, "discard")]
    assert max(heights) - min(heights) > 100
    assert len(marks(plot, "outside")) == 1


def test_a_simulated_run_says_so_in_its_report(ledger: Ledger) -> None:
    assert "Simulated:" in read(ledger, make_run(ledger, simulated=True))
    assert "Simulated:" not in read(ledger, make_run(ledger))


def test_a_very_long_diff_is_cut_and_says_so(ledger: Ledger) -> None:
    run = make_run(ledger)
    page = read(ledger, run, diff="+line\n" * 5000)
    assert "3,000 more lines are not shown." in page


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-1e-9, 1e-9), (5, 5), (-1.7e308, 1.7e308), (1e15, 1e15 + 8)]
)
def test_axes_have_round_numbers_inside_any_range(low: float, high: float) -> None:
    ticks = Scale(low, high, 0, 100).ticks()
    assert 1 <= len(ticks) <= 11
    assert all(low <= tick <= high for tick in ticks)


def test_a_range_holds_what_must_be_seen_and_leaves_out_what_is_wild() -> None:
    low, high = shown_range([5.0], [*range(100), 1e9])
    assert low < 5 < 90 < high < 200
