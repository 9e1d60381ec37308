from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ratchet.kernel import (
    decoded,
    exact_bytes,
    exact_text,
    first_line,
    last_line,
    sendable,
    shortened,
    text_decoder,
)


@given(some.binary())
def test_what_any_program_wrote_can_be_read_and_sent(content: bytes) -> None:
    text = decoded(content)
    assert sendable(text) == text
    assert exact_bytes(exact_text(content)) == content


@given(some.binary(), some.integers(1, 5))
def test_pieces_give_the_same_text_as_the_whole(content: bytes, size: int) -> None:
    decoder = text_decoder()
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    assert "".join(map(decoder.decode, pieces)) + decoder.decode(b"", final=True) == decoded(content)


def test_half_of_a_surrogate_pair_is_not_sent() -> None:
    assert sendable("a\ud83d, \N{GRINNING FACE}") == "a?, \N{GRINNING FACE}"


@pytest.mark.parametrize(("text", "shown"), [("", ""), ("abcd", "abcd"), ("abcde", "abc…")])
def test_a_long_text_is_shown_with_a_mark_where_it_was_cut(text: str, shown: str) -> None:
    assert shortened(text, 4) == shown


def test_lines_that_say_nothing_are_left_out() -> None:
    said = "\n\n  Traceback:\n boom \n\n"
    assert (first_line(said), last_line(said)) == ("Traceback:", "boom")
    assert (first_line("\n"), last_line("")) == ("", "")
