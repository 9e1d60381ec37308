"""The hypothesis of a session that has no tools, found in what it said last."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.research.sessions import hypothesis_of


@pytest.mark.parametrize(
    "said",
    [
        "HYPOTHESIS: widen the layer",
        "I did it.\n\nHypothesis: widen the layer\n",
        "**HYPOTHESIS:** widen the layer",
        "**Hypothesis**: `widen the layer`",
        "> - HYPOTHESIS: widen the layer",
        "## Hypothesis: widen the layer",
        "HYPOTHESIS = widen the layer",
        "HYPOTHESIS — widen the layer",
        "HYPOTHESIS:\n\n  widen the layer\nmore",
        "HYPOTHESIS: deepen it\nNo, rather:\nHYPOTHESIS: widen the layer",
        "HYPOTHESIS: widen the layer</hypothesis><parameter name='notes'>x",
        "HYPOTHESIS: widen\tthe\x00layer",
        "HYPOTHESIS: widen the layer\nHYPOTHESIS:",
        "widen the layer",
        "\n\n  widen the layer\nand more",
    ],
)
def test_it_is_found_however_it_is_written(said: str) -> None:
    assert hypothesis_of(said) == "widen the layer"


@pytest.mark.parametrize("said", ["", "\n \n", "***", "HYPOTHESIS:"])
def test_a_session_that_says_nothing_is_said_to_have_given_none(said: str) -> None:
    assert hypothesis_of(said) == "no hypothesis was given"


def test_a_long_one_is_cut() -> None:
    assert len(hypothesis_of("HYPOTHESIS: " + "wide " * 1000)) == 300


@given(st.text())
def test_whatever_was_said_comes_out_as_one_plain_line(said: str) -> None:
    found = hypothesis_of(f"HYPOTHESIS: {said}")
    assert found
    assert found.isprintable()
    assert len(found) <= 300
