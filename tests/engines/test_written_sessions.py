"""Sessions that were written by hand: they say which prompts they answer."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

import pytest

from ratchet.engines import Request, Session
from ratchet.engines.cassette import Header, Recorded, RecordedChange, add
from ratchet.engines.engine import Capabilities
from ratchet.engines.replay import CassetteMismatch, ReplayEngine
from ratchet.kernel import Usage


def write(cassette: Path, text: str, request: dict[str, object]) -> None:
    result = {
        "model": None,
        "text": text,
        "output": None,
        "usage": asdict(Usage()),
        "resume": None,
        "transcript": "",
        "data": {},
    }
    changes = (RecordedChange("answer.txt", "100644", text.encode()),)
    add(
        cassette,
        Header("hand", Capabilities(edits_files=True)),
        Recorded(request, (), changes, "session", result),
    )


def ask(engine: ReplayEngine, prompt: str, workspace: Path) -> Session:
    return asyncio.run(engine.propose(Request(prompt, workspace)))


@pytest.fixture
def engine(tmp_path: Path) -> ReplayEngine:
    cassette = tmp_path / "hand.jsonl"
    write(cassette, "first", {"prompt_holds": ["the step"], "prompt_lacks": ["was wrong"]})
    write(cassette, "second", {"prompt_holds": ["the step", "was wrong"]})
    return ReplayEngine(cassette)


def test_a_session_answers_every_prompt_that_fits_as_often_as_it_is_asked(
    engine: ReplayEngine, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    prompts = ("do the step", "the step, please", "this was wrong, so do the step again", "the step")
    sessions = [ask(engine, prompt, place) for prompt in prompts]
    assert [each.text for each in sessions] == ["first", "first", "second", "first"]
    assert all(each.simulated for each in sessions)
    assert (place / "answer.txt").read_text() == "first"


def test_a_prompt_that_fits_none_is_refused_with_what_it_lacks(engine: ReplayEngine, tmp_path: Path) -> None:
    with pytest.raises(CassetteMismatch) as refused:
        ask(engine, "something else", tmp_path)
    assert '-    "the step"' in refused.value.difference


@pytest.mark.parametrize(
    "request_", [{"prompt_holds": "the step"}, {"prompt_holds": [1]}, ["the step"], "the step"]
)
def test_a_request_that_makes_no_sense_answers_nothing(tmp_path: Path, request_: dict[str, object]) -> None:
    cassette = tmp_path / "odd.jsonl"
    write(cassette, "never", request_)
    with pytest.raises(CassetteMismatch):
        ask(ReplayEngine(cassette), "do the step", tmp_path)
