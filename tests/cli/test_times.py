from __future__ import annotations

import pytest

from ratchet.cli.words import age, span
from ratchet.kernel import iso


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "now"),
        (1, "1s ago"),
        (59, "59s ago"),
        (60, "1m ago"),
        (7200, "2h ago"),
        (90_000, "1d ago"),
        (-90, "in 1m"),
    ],
)
def test_ages_are_told_in_the_largest_unit(seconds: int, told: str) -> None:
    assert age(1_000_000_000, now=1_000_000 + seconds) == told


def test_a_moment_that_has_not_come_has_no_age() -> None:
    assert age(None) is None
    assert span(None, None) is None


@pytest.mark.parametrize(("seconds", "told"), [(0.25, "0.2s"), (61, "1m 1s"), (7260, "2h 1m")])
def test_spans_are_short(seconds: float, told: str) -> None:
    assert span(0, int(seconds * 1000)) == told


def test_iso_times_are_utc_with_milliseconds() -> None:
    assert iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
