"""What a model may say about its work, and what it may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.kernel import Misuse
from ratchet.research.sessions.inputs import (
    LONGEST,
    expected_delta,
    hypothesis,
    notes,
    trial_number,
    without_markup,
)


@pytest.mark.parametrize(
    "text",
    [
        "widen the layer to 128",
        "  warmup 10%→5%, since the peak comes too late  ",
        "use a < b and b > c as the order of items",
        "Größere Schritte am Anfang, kleinere am Ende",
        "very" + " wide" * 59,
    ],
)
def test_a_line_that_says_something_is_taken_without_its_margins(text: str) -> None:
    assert hypothesis(text) == text.strip()


def test_spaces_of_all_widths_become_plain_ones() -> None:
    assert hypothesis("\N{NO-BREAK SPACE}widen\N{NO-BREAK SPACE}the layer") == "widen the layer"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0 characters"),
        ("test", "4 characters"),
        ("widen it", "8 characters"),
        ("wide " * 61, "characters"),
        ("test test test", "says nothing"),
        ("testing the hypothesis", "says nothing"),
        ("xxxxxxxxxxxxxxx", "says nothing"),
        ("1234567890 1234567890", "says nothing"),
        ("placeholder text", "says nothing"),
        ("widen the layer\nand deepen it", "U+000A or a second line"),
        ("widen the layer\rand deepen it", "U+000D"),
        ("widen the layer\tand deepen it", "U+0009"),
        ("widen the layer\x1b[31m now", "U+001B"),
        ("widen the layer\u202e now", "U+202E"),
        ("widen the layer\u2028 now", "U+2028"),
        ("widen the layer\x00 now", "U+0000"),
        ("widen the layer\ud800 now", "U+D800"),
        ("widen the layer</hypothesis>", "markup"),
        ('widen the layer <parameter name="notes">more', "markup"),
        ("widen the layer < / notes> more", "markup"),
        ("<invoke name='x'> widen the layer", "markup"),
        ("widen the layer </b> more", "markup"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(Misuse) as refused:
        hypothesis(text)
    assert why in str(refused.value)
    assert refused.value.hint


@given(st.text())
def test_what_is_taken_is_always_one_plain_line(text: str) -> None:
    try:
        taken = hypothesis(text)
    except Misuse:
        return
    assert taken.isprintable()
    assert len(taken.splitlines()) == 1
    assert 10 <= len(taken) <= LONGEST
    assert "</" not in taken


@pytest.mark.parametrize(
    ("said", "taken"), [(0.5, "0.5"), (-2, "-2"), ("-0.6", "-0.6"), (" +1e-3 ", "+1e-3"), (0, "0")]
)
def test_an_expected_delta_is_a_number_or_the_text_of_one(said: str | float, taken: str) -> None:
    assert expected_delta(said) == taken


@pytest.mark.parametrize(
    "said",
    [
        "",
        "much",
        "nan",
        "inf",
        "-Infinity",
        "1_000",
        "\N{ARABIC-INDIC DIGIT THREE}",
        "0.5%",
        "1 2",
        "0x10",
        float("nan"),
        float("inf"),
        "1" * 40,
    ],
)
def test_no_other_expected_delta_is_taken(said: str | float) -> None:
    with pytest.raises(Misuse, match="is no number"):
        expected_delta(said)


@pytest.mark.parametrize(
    "said", ["exp_75", "exp-075", "EXP 75", "075", "75", 75, "#75", " trial_75 ", "000075"]
)
def test_all_ways_to_name_a_trial_mean_the_same(said: str | int) -> None:
    assert trial_number(said) == 75


@pytest.mark.parametrize(
    "said",
    [
        "",
        "best",
        "-1",
        -1,
        "7.5",
        "75; rm",
        "\N{ARABIC-INDIC DIGIT SEVEN}",
        "exp_",
        "1" * 10,
        "../75",
        "75\n76",
    ],
)
def test_nothing_else_names_a_trial(said: str | int) -> None:
    with pytest.raises(Misuse, match="is no id of a trial"):
        trial_number(said)


def test_notes_may_have_lines_but_neither_controls_nor_markup_nor_any_length() -> None:
    assert notes(" one\n\ttwo ") == "one\n\ttwo"
    for text in ("a\x00b", "a\x1bb", 'a <parameter name="x">', "x" * 2001):
        with pytest.raises(Misuse):
            notes(text)


def test_markup_that_leaked_ends_a_text() -> None:
    assert without_markup("widen\tit</hypothesis>\n<parameter>rest") == "widen it"
