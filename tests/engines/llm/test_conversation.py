"""A conversation continues from what was kept of it."""

from __future__ import annotations

import datetime
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.engines import Failure, Request
from ratchet.engines.llm.exchange import LlmConversation, LlmConversations
from ratchet.modelserver import ModelServer, call, say
from tests.engines.conftest import Place
from tests.engines.contract import KEY, SCHEMA, fails, propose
from tests.engines.llm.subject import LlmSubject

HI = Request("My name is Ada.", system="Be brief.", deadline_seconds=30)


def kept(place: Place) -> list[Path]:
    return sorted((place.home / "sessions" / "llm").glob("*/*"))


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
def test_what_was_said_is_sent_again(place: Place, model_server: ModelServer, kind: str) -> None:
    llm = LlmSubject(place, model_server, kind)
    engine = llm.open(say("Hello, Ada."), say("Ada."))
    first = propose(engine, HI)
    propose(engine, Request("What is my name?", resume=first.resume))
    said = [(each.speaker, each.text) for each in llm.script.requests[1].messages]
    assert said == [
        ("system", "Be brief."),
        ("user", "My name is Ada."),
        ("assistant", "Hello, Ada."),
        ("user", "What is my name?"),
    ]


def test_one_conversation_can_go_on_in_two_ways(llm: LlmSubject) -> None:
    engine = llm.open(say("one"), say("two"), say("three"))
    first = propose(engine, HI)
    second = propose(engine, Request("a", resume=first.resume))
    third = propose(engine, Request("b", resume=first.resume))
    assert len({first.resume, second.resume, third.resume}) == 3
    assert [each.said for each in llm.script.requests[1:]] == ["My name is Ada.\na", "My name is Ada.\nb"]


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
def test_a_structured_answer_can_be_talked_about(place: Place, model_server: ModelServer, kind: str) -> None:
    llm = LlmSubject(place, model_server, kind)
    engine = llm.open(call("answer", score=4), say("It was good."), endpoint='structured = "tool"')
    first = propose(engine, replace(HI, output_schema=SCHEMA))
    propose(engine, Request("Why?", resume=first.resume))
    assert "score" in llm.script.requests[1].messages[-2].text
    assert llm.script.requests[1].tools == ()


def test_another_endpoint_can_go_on_with_it(llm: LlmSubject) -> None:
    engine = llm.open(say("Hello, Ada."), spare=[say("Ada.")])
    first = propose(engine, HI)
    propose(engine, Request("Name?", resume=first.resume, model="spare/other"))
    assert llm.spare.requests[0].said == "My name is Ada.\nName?"


def test_only_its_owner_can_read_it_and_the_key_is_not_in_it(llm: LlmSubject, place: Place) -> None:
    propose(llm.open(say(f"The key is {KEY}.")), HI)
    [file] = kept(place)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert KEY not in file.read_text()


def test_a_failed_session_leaves_none(llm: LlmSubject, place: Place) -> None:
    failed = fails(llm.open(), HI)
    assert (failed.session.resume, kept(place)) == (None, [])


def test_an_answer_is_not_lost_when_it_cannot_be_kept(llm: LlmSubject, place: Place) -> None:
    engine = llm.open(say("hello"))
    (place.home / "sessions").write_text("in the way")
    session = propose(engine, HI)
    assert (session.text, session.resume) == ("hello", None)
    assert b"this session cannot be resumed: Not a directory" in session.transcript


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"system": null, "messages": [{"kind": "other"}]}', "\xff"]
)
def test_one_that_cannot_be_read_is_refused(llm: LlmSubject, place: Place, content: str) -> None:
    engine = llm.open(say("one"))
    resume = propose(engine, HI).resume
    kept(place)[0].write_bytes(content.encode("latin-1"))
    failed = fails(engine, Request("two", resume=resume))
    assert (failed.failure, failed.worked) == (Failure.REFUSED, False)
    assert f"the conversation {resume} cannot be read" in str(failed)


def test_old_ones_are_dropped_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    today = datetime.date(2026, 1, 1)
    store = LlmConversations(tmp_path, keep_days=7, today=lambda: today)
    old = store.keep(LlmConversation("old"), hide=str)
    (tmp_path / "notes").mkdir()
    today = datetime.date(2026, 1, 8)
    young = store.keep(LlmConversation("young"), hide=str)
    assert store.load(old).system == "old"
    today = datetime.date(2026, 1, 9)
    store.keep(LlmConversation("new"), hide=str)
    assert store.load(young).system == "young"
    with pytest.raises(Exception, match="there is no conversation"):
        store.load(old)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["2026-01-08", "2026-01-09", "notes"]


def test_the_days_are_those_of_the_settings(llm: LlmSubject, place: Place) -> None:
    stale = place.home / "sessions" / "llm" / "2020-01-01"
    stale.mkdir(parents=True)
    propose(llm.open(say("one"), llm="resume_days = 36500"), HI)
    assert stale.exists()
    propose(llm.open(say("one"), llm="resume_days = 1"), HI)
    assert not stale.exists()
