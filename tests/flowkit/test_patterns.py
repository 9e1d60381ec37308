"""Patterns of strangers are matched only where that ends soon."""

import pytest

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.inputs import fits, pattern_problem


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("^https?://.*", "https://example.org/" + "a" * 10_000, True),
        ("^[a-z.]+@[a-z]+\\.[a-z]+$", "ada@example.org", True),
        ("^[a-z.]+@[a-z]+\\.[a-z]+$", "ada", False),
        ("^(red|green)$", "green", True),
        ("\\)+", "())", True),
        ("[)*]+x", ")x", True),
    ],
)
def test_a_sane_pattern_is_matched(pattern: str, text: str, expected: bool) -> None:
    assert pattern_problem(pattern) is None
    assert fits(text, pattern) is expected


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*){2,}", r"(a)\1", "(", "a" * 501])
def test_a_pattern_that_is_broken_or_can_run_away_is_refused(pattern: str) -> None:
    assert pattern_problem(pattern)
    with pytest.raises(SpecError):
        fits("a" * 50, pattern)


@pytest.mark.parametrize("pattern", [".*a.*b.*c.*d", "a?" * 100 + "a" * 100, "(a|aa)" * 60])
def test_a_pattern_that_is_too_costly_for_the_text_is_not_tried(pattern: str) -> None:
    with pytest.raises(SpecError, match="too costly"):
        fits("a" * 5000, pattern)
