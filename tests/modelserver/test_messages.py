"""Anthropic Messages, as Anthropic's own client reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ratchet.modelserver import ScriptedCall, Tokens, Turn, call, say
from tests.modelserver.conftest import Play

if TYPE_CHECKING:
    import anthropic

ASKED: dict[str, Any] = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
EVERYTHING = Turn(
    text="hello big world",
    thinking="hm",
    calls=(ScriptedCall("f", {"a": [1, 2]}),),
    usage=Tokens(input=100, cached=40, output=10),
)


def test_an_answer_has_text_calls_and_usage(play: Play, claude: anthropic.Anthropic) -> None:
    play(EVERYTHING)
    message = claude.messages.create(**ASKED)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.content[2].input == {"a": [1, 2]}
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (60, 40)
    assert message.usage.output_tokens == 10
    assert message.id.startswith("scripted-")


def test_a_stream_ends_in_the_same_answer(play: Play, claude: anthropic.Anthropic) -> None:
    play(EVERYTHING, EVERYTHING)
    whole = claude.messages.create(**ASKED)
    with claude.messages.stream(**ASKED) as stream:
        assert list(stream.text_stream) == ["hello ", "big ", "world"]
        final = stream.get_final_message()
    assert [block.type for block in final.content] == [block.type for block in whole.content]
    assert final.content[2].input == {"a": [1, 2]}
    assert (final.stop_reason, final.usage.output_tokens) == ("tool_use", 10)


def test_a_refusal_and_an_answer_that_is_too_long_are_told_apart(
    play: Play, claude: anthropic.Anthropic
) -> None:
    play(Turn(text="I will not.", ended="refused"), Turn(text="and so on", ended="length"))
    assert claude.messages.create(**ASKED).stop_reason == "refusal"
    assert claude.messages.create(**ASKED).stop_reason == "max_tokens"


def test_the_script_knows_what_was_asked(play: Play, claude: anthropic.Anthropic) -> None:
    script = play(call("f", a=1), say("fine"))
    tools: Any = [{"name": "f", "input_schema": {"type": "object"}}]
    message = claude.messages.create(**ASKED, tools=tools)
    result = {"type": "tool_result", "tool_use_id": message.content[0].id, "content": "it worked"}
    told = [*ASKED["messages"], {"role": "assistant", "content": message.content}]
    told += [{"role": "user", "content": [result, {"type": "text", "text": "continue"}]}]
    claude.messages.create(**{**ASKED, "messages": told}, system="be brief")
    assert script.requests[1].newest == "it worked\ncontinue"
    assert script.requests[1].results == ("it worked",)
    assert script.requests[0].tools == ("f",)
    assert "key" in " ".join(script.requests[0].headers.values())


def test_counting_tokens_uses_no_turn(play: Play, claude: anthropic.Anthropic) -> None:
    script = play(say("hi"))
    assert claude.messages.count_tokens(model="m", messages=ASKED["messages"]).input_tokens > 0
    assert (script.left, script.requests) == (1, [])


def test_models_are_listed(play: Play, claude: anthropic.Anthropic) -> None:
    play()
    assert [model.id for model in claude.models.list()] == ["scripted"]
