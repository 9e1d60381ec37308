"""What a model says is heard while it says it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from ratchet.engines import EventKind, Request, SessionEvent
from ratchet.engines.endpoint import HiddenKeys
from ratchet.modelserver import ModelServer, cut, say
from tests.engines.conftest import Place
from tests.engines.contract import fails, lines, propose
from tests.engines.llm.subject import LlmSubject

TALE = "Once upon a time there was a ratchet that turned one way only."


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
def test_pieces_are_heard_before_the_end_and_add_up_to_the_answer(
    place: Place, model_server: ModelServer, kind: str
) -> None:
    heard: list[tuple[float, SessionEvent]] = []
    engine = LlmSubject(place, model_server, kind).open(replace(say(TALE), pace_seconds=0.06))
    session = propose(engine, Request("go", listen=lambda event: heard.append((time.monotonic(), event))))
    pieces = [(at, event) for at, event in heard if event.kind is EventKind.MESSAGE]
    assert "".join(event.text for _, event in pieces) == session.text == TALE
    assert pieces[-1][0] - pieces[0][0] > 0.3
    assert [event.data.get("more", False) for _, event in pieces] == [True] * (len(pieces) - 1) + [False]


def test_a_fast_answer_is_one_piece(llm: LlmSubject) -> None:
    session = propose(llm.open(say("Short.")), Request("go"))
    said = [each for each in lines(session) if each["kind"] == EventKind.MESSAGE]
    assert [(each["text"], each["data"]) for each in said] == [("Short.", {})]


def test_what_was_said_before_a_cut_is_in_the_transcript(llm: LlmSubject) -> None:
    failed = fails(llm.open(cut(TALE, after=5), llm="tries = 1"), Request("go"))
    assert "Once upon a" in "".join(each["text"] for each in lines(failed.session))
    assert failed.session.text == ""


@pytest.mark.parametrize(
    ("text", "held"),
    [("my key is abc", 3), ("abcd", 4), ("abcdef", 6), ("xbcd", 3), ("abcdefg", 0), ("", 0), ("xyz", 0)],
)
def test_the_beginning_of_a_secret_waits_for_the_rest(text: str, held: int) -> None:
    secrets = HiddenKeys(["abcdefg", "bcdefx"])
    assert secrets.held_back(text) == held


def test_short_placeholders_are_no_secrets() -> None:
    assert HiddenKeys(["", "none"]).hide("none of it") == "none of it"
