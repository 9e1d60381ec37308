"""OpenAI Responses, as OpenAI's own client reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.modelserver import ScriptedCall, Tokens, Turn, answer, call, call_freely, say
from tests.modelserver.conftest import Play

if TYPE_CHECKING:
    import openai

EVERYTHING = Turn(
    text="hello big world",
    thinking="hm",
    calls=(
        ScriptedCall("f", {"a": 1}),
        ScriptedCall("g", "free text", custom=True),
        ScriptedCall("h", {}, namespace="mcp__lab"),
    ),
    usage=Tokens(input=100, cached=40, output=10, reasoning=3),
)


def test_an_answer_has_text_calls_and_usage(play: Play, ask: openai.OpenAI) -> None:
    play(EVERYTHING)
    response = ask.responses.create(model="m", input="hi")
    assert response.output_text == "hello big world"
    assert [item.type for item in response.output] == [
        "reasoning",
        "message",
        "function_call",
        "custom_tool_call",
        "function_call",
    ]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.input_tokens_details.cached_tokens) == (100, 40)
    assert (response.usage.output_tokens, response.usage.output_tokens_details.reasoning_tokens) == (10, 3)
    assert response.usage.total_tokens == 110


def test_a_stream_ends_in_the_same_answer(play: Play, ask: openai.OpenAI) -> None:
    play(EVERYTHING, EVERYTHING)
    whole = ask.responses.create(model="m", input="hi")
    with ask.responses.stream(model="m", input="hi") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert deltas == ["hello ", "big ", "world"]
    assert (final.output_text, final.usage) == (whole.output_text, whole.usage)
    assert [item.type for item in final.output] == [item.type for item in whole.output]


def test_calls_are_streamed_with_their_arguments(play: Play, ask: openai.OpenAI) -> None:
    play(call("exec_command", cmd="echo hi"), call_freely("apply_patch", "*** Begin Patch"))
    with ask.responses.stream(model="m", input="hi") as stream:
        events = {event.type: event for event in stream}
    assert events["response.function_call_arguments.done"].arguments == '{"cmd": "echo hi"}'
    with ask.responses.stream(model="m", input="hi") as stream:
        events = {event.type: event for event in stream}
    assert events["response.custom_tool_call_input.done"].input == "*** Begin Patch"


def test_structured_output_is_parsed_by_the_client(play: Play, ask: openai.OpenAI) -> None:
    from pydantic import BaseModel

    class Score(BaseModel):
        score: float

    script = play(answer({"score": 0.5}))
    response = ask.responses.parse(model="m", input="rate", text_format=Score)
    assert response.output_parsed == Score(score=0.5)
    assert script.requests[0].body["text"]["format"]["type"] == "json_schema"


def test_a_refusal_and_an_answer_that_is_too_long_are_told_apart(play: Play, ask: openai.OpenAI) -> None:
    play(Turn(text="I will not.", ended="refused"), Turn(text="and so on and", ended="length"))
    refused = ask.responses.create(model="m", input="hi")
    assert (refused.status, refused.output_text) == ("completed", "")
    assert refused.output[0].content[0].refusal == "I will not."  # type: ignore[union-attr]
    with ask.responses.stream(model="m", input="hi") as stream:
        assert list(stream)[-1].type == "response.incomplete"


def test_unknown_usage_is_left_out(play: Play, ask: openai.OpenAI) -> None:
    play(say("hi", usage=None))
    assert ask.responses.create(model="m", input="hi").usage is None


def test_everything_that_is_served_is_marked_as_scripted(play: Play, ask: openai.OpenAI) -> None:
    play(say("hi"))
    raw = ask.responses.with_raw_response.create(model="m", input="hi")
    assert raw.headers["x-ratchet-scripted"] == "1"
    assert raw.parse().id.startswith("scripted-")


def test_the_script_knows_what_was_asked(play: Play, ask: openai.OpenAI) -> None:
    script = play(say("hi"))
    ask.responses.create(
        model="some-model",
        input=[
            {"role": "user", "content": "first"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "it worked"},
        ],
        tools=[{"type": "function", "name": "f", "parameters": {}, "strict": False}],
    )
    [seen] = script.requests
    assert (seen.newest, seen.said, seen.results) == ("it worked", "first\nit worked", ("it worked",))
    assert (seen.body["model"], seen.tools) == ("some-model", ("f",))
    assert seen.headers["authorization"] == "Bearer key"
