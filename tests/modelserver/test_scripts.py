"""Which turn answers which request."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ratchet.kernel import Misuse
from ratchet.modelserver import Exchange, ModelServer, Turn, fail, say
from tests.modelserver.conftest import NAME, Play

if TYPE_CHECKING:
    import openai

    Say = Callable[[str], str]


@pytest.fixture
def talk(ask: openai.OpenAI) -> Say:
    """Says something to the model; what it answers."""
    return lambda text: ask.responses.create(model="m", input=text).output_text


def test_turns_are_used_in_order_and_then_the_script_is_used_up(play: Play, talk: Say) -> None:
    import openai

    script = play(say("one"), say("two"))
    assert [talk("a"), talk("b")] == ["one", "two"]
    with pytest.raises(openai.BadRequestError, match="script test is used up after 2 turns"):
        talk("c")
    assert script.problems == ["script test is used up after 2 turns"]
    assert [seen.newest for seen in script.requests] == ["a", "b", "c"]


def test_a_turn_is_repeated_a_number_of_times_or_always(play: Play, talk: Say) -> None:
    script = play(Turn(text="twice", repeat=2), Turn(text="always", repeat="always"))
    assert [talk("x") for _ in range(5)] == ["twice", "twice", "always", "always", "always"]
    assert script.left == 0


def test_a_turn_waits_for_its_words(play: Play, talk: Say) -> None:
    play(Turn(text="for b", when="task b"), Turn(text="for a", when="task a"), say("for anybody"))
    assert [talk("do task a"), talk("hello"), talk("do task b")] == ["for a", "for anybody", "for b"]


def test_a_conversation_is_known_by_what_was_said_in_it_before(play: Play, ask: openai.OpenAI) -> None:
    play(Turn(text="for b", within="task b"), Turn(text="for a", within="task a"))
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    asked: Any = [{"role": "user", "content": "do task a"}, call, result]
    assert ask.responses.create(model="m", input=asked).output_text == "for a"


def test_a_request_that_no_turn_waits_for_is_an_error_that_shows_it(play: Play, talk: Say) -> None:
    import openai

    script = play(Turn(text="for b", when="task b"))
    with pytest.raises(openai.BadRequestError, match=r"waiting for when 'task b'; it said: do task c"):
        talk("do task c")
    assert (script.left, len(script.problems)) == (1, 1)


def test_a_function_answers_by_what_it_is_asked(model_server: ModelServer, talk: Say) -> None:
    model_server.script(NAME, lambda body: say(str(body["input"]).upper()))
    assert talk("loud") == "LOUD"


def test_a_function_that_raises_is_an_error_that_says_so(model_server: ModelServer, talk: Say) -> None:
    import openai

    script = model_server.script(NAME, lambda body: say(body["missing"]))
    with pytest.raises(openai.BadRequestError, match="script test raised KeyError: 'missing'"):
        talk("x")
    assert len(script.problems) == 1


def test_concurrent_clients_use_each_turn_once(play: Play, talk: Say) -> None:
    script = play(*(say(str(number)) for number in range(40)))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(talk, "x" * 40))
    assert sorted(map(int, answers)) == list(range(40))
    assert (script.left, script.problems, len(script.requests)) == (0, [], 40)


def test_concurrent_conversations_of_one_script_keep_apart(play: Play, talk: Say) -> None:
    play(*(Turn(text=f"answer {number}", when=f"question {number}.") for number in range(20)))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(talk, [f"question {number}." for number in range(20)]))
    assert answers == [f"answer {number}" for number in range(20)]


def test_an_unknown_script_is_an_error_that_names_the_known(
    model_server: ModelServer, ask: openai.OpenAI
) -> None:
    import openai

    model_server.script("known", [])
    lost = ask.with_options(base_url=model_server.openai_url("lost"))
    with pytest.raises(openai.NotFoundError, match=r"there is no script 'lost'; there are: .*known"):
        lost.responses.create(model="m", input="hi")


@pytest.mark.parametrize("name", ["", "a/b", "../x", "Upper", "a b"])
def test_a_name_that_is_no_part_of_a_url_is_refused(model_server: ModelServer, name: str) -> None:
    with pytest.raises(Misuse, match="cannot name a script"):
        model_server.script(name, [])


def test_who_watches_is_told_each_exchange(talk: Say) -> None:
    import openai

    told: list[Exchange] = []
    with ModelServer(watch=told.append) as server:
        server.script("w", [say("hi"), fail(500)])
        with openai.OpenAI(base_url=server.openai_url("w"), api_key="k", max_retries=0) as client:
            client.responses.create(model="m", input="hi")
            for _ in range(2):
                with pytest.raises(openai.APIStatusError):
                    client.responses.create(model="m", input="hi")
    assert [each.turn.status if each.turn else None for each in told] == [200, 500, None]
    assert [each.ending for each in told] == ["answered", "answered", "script w is used up after 2 turns"]
