"""OpenAI chat completions, as OpenAI's own client reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.modelserver import ScriptedCall, Tokens, Turn, answer, call, call_mcp, say
from tests.modelserver.conftest import Play

if TYPE_CHECKING:
    import openai

HI: list[Any] = [{"role": "user", "content": "hi"}]


def test_an_answer_has_text_calls_and_usage(play: Play, ask: openai.OpenAI) -> None:
    calls = (ScriptedCall("f", {"a": 1}), ScriptedCall("g", "free text", custom=True))
    play(Turn(text="hello", calls=calls, usage=Tokens(100, 40, 10, 3)))
    completion = ask.chat.completions.create(model="m", messages=HI)
    [choice] = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("hello", "tool_calls")
    assert [each.type for each in choice.message.tool_calls or []] == ["function", "custom"]
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (100, 10)
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 40


def test_a_stream_ends_in_the_same_answer_and_in_usage_if_it_was_asked_for(
    play: Play, ask: openai.OpenAI
) -> None:
    play(Turn(text="hello big world", calls=(ScriptedCall("f", {"a": 1, "b": [2, 3]}),), repeat=2))
    with ask.chat.completions.stream(
        model="m", messages=HI, stream_options={"include_usage": True}
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert [each for each in deltas if each] == ["hello ", "big ", "world"]
    assert final.choices[0].message.tool_calls[0].function.arguments == '{"a": 1, "b": [2, 3]}'  # type: ignore[index]
    assert final.usage is not None
    with ask.chat.completions.stream(model="m", messages=HI) as stream:
        assert stream.get_final_completion().usage is None


def test_structured_output_is_parsed_by_the_client(play: Play, ask: openai.OpenAI) -> None:
    from pydantic import BaseModel

    class Score(BaseModel):
        score: float

    script = play(answer({"score": 0.5}))
    completion = ask.chat.completions.parse(model="m", messages=HI, response_format=Score)
    assert completion.choices[0].message.parsed == Score(score=0.5)
    assert script.requests[0].body["response_format"]["type"] == "json_schema"


def test_arguments_that_are_not_json_are_sent_as_they_are(play: Play, ask: openai.OpenAI) -> None:
    play(Turn(calls=(ScriptedCall("f", '{"a": '),)))
    [choice] = ask.chat.completions.create(model="m", messages=HI).choices
    assert choice.message.tool_calls[0].function.arguments == '{"a": '  # type: ignore[index, union-attr]


def test_a_refusal_and_an_answer_that_is_too_long_are_told_apart(play: Play, ask: openai.OpenAI) -> None:
    play(Turn(text="I will not.", ended="refused"), Turn(text="and so on", ended="length"))
    [refused] = ask.chat.completions.create(model="m", messages=HI).choices
    assert (refused.message.content, refused.message.refusal) == (None, "I will not.")
    [long] = ask.chat.completions.create(model="m", messages=HI).choices
    assert (long.message.content, long.finish_reason) == ("and so on", "length")


def test_a_namespace_is_part_of_the_name(play: Play, ask: openai.OpenAI) -> None:
    play(call_mcp("lab", "submit", score=1))
    [choice] = ask.chat.completions.create(model="m", messages=HI).choices
    assert choice.message.tool_calls[0].function.name == "mcp__lab__submit"  # type: ignore[index, union-attr]


def test_the_script_knows_what_was_asked(play: Play, ask: openai.OpenAI) -> None:
    script = play(call("f"), say("hi"))
    tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    completion = ask.chat.completions.create(model="m", messages=HI, tools=tools)
    result = {"role": "tool", "tool_call_id": "scripted-test-1-call-0", "content": "it worked"}
    message: Any = completion.choices[0].message.to_dict()
    ask.chat.completions.create(model="m", messages=[*HI, message, result], tools=tools)
    assert [seen.newest for seen in script.requests] == ["hi", "it worked"]
    assert script.requests[1].said == "hi\nit worked"
    assert script.requests[0].tools == ("f",)


def test_models_are_listed(play: Play, ask: openai.OpenAI) -> None:
    play()
    assert [model.id for model in ask.models.list()] == ["scripted"]
    assert ask.models.retrieve("any").id == "any"
