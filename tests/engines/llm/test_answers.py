"""Chat and structured answers, over each protocol."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.engines import EventKind, Failure, Request
from ratchet.modelserver import ModelServer, ScriptedCall, Turn, answer, call, say
from tests.engines.conftest import Place
from tests.engines.contract import SCHEMA, fails, lines, propose
from tests.engines.llm.subject import LlmSubject, prompts

KINDS = pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])


@KINDS
def test_the_system_prompt_reaches_the_model(place: Place, model_server: ModelServer, kind: str) -> None:
    llm = LlmSubject(place, model_server, kind)
    propose(llm.open(say("hello")), Request("hi", system="Be brief."))
    [seen] = llm.script.requests
    assert [each.text for each in seen.messages if each.speaker == "system"] == ["Be brief."]
    assert seen.newest == "hi"


@KINDS
@pytest.mark.parametrize("way", ["native", "tool", "prompt"])
def test_a_schema_is_asked_for_in_each_way(
    place: Place, model_server: ModelServer, kind: str, way: str
) -> None:
    llm = LlmSubject(place, model_server, kind)
    turn = call("answer", score=1) if way == "tool" else answer({"score": 1})
    engine = llm.open(turn, endpoint=f'structured = "{way}"')
    assert propose(engine, Request("rate", output_schema=SCHEMA)).output == {"score": 1}
    [seen] = llm.script.requests
    asked = {
        "native": "response_format" in seen.body or "output_config" in seen.body,
        "tool": seen.tools == ("answer",),
        "prompt": any("JSON Schema" in each.text for each in seen.messages),
    }
    assert [name for name, used in asked.items() if used] == [way]


@pytest.mark.parametrize(("kind", "way"), [("openai", "native"), ("ollama", "native"), ("anthropic", "tool")])
def test_by_itself_it_takes_the_way_that_the_model_knows(
    place: Place, model_server: ModelServer, kind: str, way: str
) -> None:
    llm = LlmSubject(place, model_server, kind)
    turn = call("answer", score=1) if way == "tool" else answer({"score": 1})
    propose(llm.open(turn), Request("rate", output_schema=SCHEMA))
    assert ("answer" in llm.script.requests[0].tools) == (way == "tool")


@pytest.mark.parametrize(
    ("schema", "value"),
    [({"type": "array", "items": {"type": "integer"}}, [1, 2]), ({"enum": ["yes", "no"]}, "yes")],
)
def test_an_answer_need_not_be_an_object(llm: LlmSubject, schema: dict[str, Any], value: Any) -> None:
    assert propose(llm.open(answer(value)), Request("rate", output_schema=schema)).output == value


@KINDS
@pytest.mark.parametrize("way", ["native", "tool"])
def test_a_wrong_answer_is_sent_back_with_what_is_wrong(
    place: Place, model_server: ModelServer, kind: str, way: str
) -> None:
    llm = LlmSubject(place, model_server, kind)
    wrong, right = call("answer", score="high"), call("answer", score=3)
    if way == "native":
        wrong, right = answer({"score": "high"}), answer({"score": 3})
    engine = llm.open(wrong, right, endpoint=f'structured = "{way}"')
    session = propose(engine, Request("rate", output_schema=SCHEMA))
    assert session.output == {"score": 3}
    assert "$.score: 'high' is not of type 'number'" in prompts(llm.script)[1]
    assert session.usage.tokens == 220
    assert [each["text"] for each in lines(session) if each["kind"] == "note"][-1].startswith("sent back: ")


@pytest.mark.parametrize("repairs", [0, 3])
def test_it_is_sent_back_only_so_often(llm: LlmSubject, repairs: int) -> None:
    engine = llm.open(Turn(text="no", repeat="always"), llm=f"repairs = {repairs}")
    failed = fails(engine, Request("rate", output_schema=SCHEMA))
    assert failed.failure is Failure.BAD_OUTPUT
    assert f"in {repairs + 1} tries: the answer is not JSON: 'no'" in str(failed)
    assert len(llm.script.requests) == repairs + 1
    assert failed.session.usage.tokens == 110 * (repairs + 1)


def test_arguments_that_are_not_json_are_sent_back(llm: LlmSubject) -> None:
    broken = Turn(calls=(ScriptedCall("answer", '{"score": '),))
    engine = llm.open(broken, call("answer", score=1), endpoint='structured = "tool"')
    assert propose(engine, Request("rate", output_schema=SCHEMA)).output == {"score": 1}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/secret"}}}, '{"a": 1}'),
        ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, '{"a": 1}'),
        ({"type": "object"}, "[" * 100_000),
    ],
)
def test_a_hostile_schema_or_answer_is_bad_output(llm: LlmSubject, schema: dict[str, Any], text: str) -> None:
    engine = llm.open(Turn(text=text, repeat="always"), endpoint='structured = "prompt"')
    assert fails(engine, Request("rate", output_schema=schema)).failure is Failure.BAD_OUTPUT


def test_an_empty_answer_is_no_answer(llm: LlmSubject) -> None:
    failed = fails(llm.open(Turn(text="", repeat="always")), Request("hi"))
    assert (failed.failure, failed.session.text) == (Failure.BAD_OUTPUT, "")


@pytest.mark.soak
@KINDS
def test_thinking_is_told_apart_from_the_answer(place: Place, model_server: ModelServer, kind: str) -> None:
    llm = LlmSubject(place, model_server, kind)
    session = propose(llm.open(Turn(text="four", thinking="two and two")), Request("sum"))
    said = [(each["kind"], each["text"]) for each in lines(session)]
    assert (EventKind.REASONING, "two and two") in said
    assert session.text == "four"


def test_the_size_of_an_answer_can_be_bounded(llm: LlmSubject) -> None:
    propose(llm.open(say("hello"), llm="output_tokens = 77"), Request("hi"))
    body = llm.script.requests[0].body
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 77
