"""How an export asks models: again where that helps, and never on with half an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ratchet.flowkit.errors import StepFailed
from ratchet.modelserver import ModelServer, Script, Turn, answer, fail, say
from ratchet.workflows.export_runner.models import ModelEndpoint, ModelRequest, ask, ask_for_json, endpoint_of

QUESTION = ModelRequest("some-model", "how much?", system="You count.", temperature=0.0)
COUNTED = ModelRequest(
    "some-model",
    "how much?",
    schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)
KEY = "a-very-secret-key"


class Model:
    """A scripted model and the way to it in each protocol."""

    def __init__(self, server: ModelServer, name: str, turns: Sequence[Turn]) -> None:
        self._server, self._name = server, name
        self.script: Script = server.script(name, turns)

    def endpoint(self, provider: str) -> ModelEndpoint:
        variables = {
            "OPENAI_BASE_URL": self._server.openai_url(self._name),
            "OPENAI_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self._server.anthropic_url(self._name) + "/",
            "ANTHROPIC_API_KEY": KEY,
            "OLLAMA_BASE_URL": self._server.anthropic_url(self._name),
        }
        return endpoint_of(provider, variables)


@pytest.fixture(params=["openai", "anthropic", "ollama"])
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def model(server: ModelServer, provider: str, turns: Sequence[Turn], name: str) -> Model:
    return Model(server, f"asking-{provider}-{name}", turns)


def test_it_says_who_asks_and_counts_the_tokens(model_server: ModelServer, provider: str) -> None:
    asked = model(model_server, provider, [say("three")], "plain")
    found = asyncio.run(ask(asked.endpoint(provider), QUESTION, 10))
    assert found.text == "three"
    assert found.tokens > 0
    (seen,) = asked.script.requests
    assert seen.body["model"] == "some-model"
    assert seen.body["temperature"] == 0.0
    assert [(each.speaker, each.text) for each in seen.messages if each.text] == [
        ("system", "You count."),
        ("user", "how much?"),
    ]


@pytest.mark.soak
def test_it_asks_again_when_a_model_is_busy(model_server: ModelServer, provider: str) -> None:
    turns = [fail(429, retry_after=0), fail(503), say("three")]
    asked = model(model_server, provider, turns, "busy")
    assert asyncio.run(ask(asked.endpoint(provider), QUESTION, 10)).text == "three"


@pytest.mark.parametrize(
    ("turn", "why", "final"),
    [
        (fail(401, message=f"wrong key {KEY}"), "answered 401", True),
        (fail(429, retry_after=3600), "answered 429", False),
        (Turn(text="half", ended="length"), "cut at its largest size", True),
        (Turn(text="no", ended="refused"), "declined", True),
        (say(" "), "answered nothing", False),
        (Turn(raw="<html>busy</html>"), "not JSON", False),
        (Turn(raw="{}"), "no answer of a model", False),
    ],
)
def test_what_is_no_answer_is_a_failure(
    model_server: ModelServer, provider: str, turn: Turn, why: str, final: bool
) -> None:
    asked = model(model_server, provider, [turn], f"bad-{abs(hash((why, turn.status)))}")
    with pytest.raises(StepFailed, match=why) as raised:
        asyncio.run(ask(asked.endpoint(provider), QUESTION, 10))
    assert raised.value.final is final
    assert provider == "ollama" or KEY not in str(raised.value)
    assert len(asked.script.requests) == 1


def test_an_answer_that_does_not_fit_is_sent_back(model_server: ModelServer, provider: str) -> None:
    turns = [say("about three"), answer({"n": "three"}), say('```json\n{"n": 3}\n```')]
    asked = model(model_server, provider, turns, "repair")
    value, tokens = asyncio.run(ask_for_json(asked.endpoint(provider), COUNTED, 10))
    assert value == {"n": 3}
    assert tokens > 0
    assert "n must be of type integer" in asked.script.requests[-1].newest
    assert len(asked.script.requests) == 3


def test_an_answer_that_never_fits_is_a_failure(model_server: ModelServer, provider: str) -> None:
    asked = model(model_server, provider, [Turn(text="no", repeat="always")], "never")
    with pytest.raises(StepFailed, match="not as asked after 2 repairs"):
        asyncio.run(ask_for_json(asked.endpoint(provider), COUNTED, 10))


@pytest.mark.soak
def test_nobody_there_is_a_failure_that_names_the_address() -> None:
    endpoint = endpoint_of("ollama", {"OLLAMA_BASE_URL": "http://127.0.0.1:9"})
    with pytest.raises(
        StepFailed, match=r"ollama at http://127\.0\.0\.1:9/v1/chat/completions did not answer"
    ):
        asyncio.run(ask(endpoint, QUESTION, 5))


def test_a_key_is_needed_only_at_the_makers_own_address() -> None:
    with pytest.raises(StepFailed, match="OPENAI_API_KEY is not set"):
        endpoint_of("openai", {})
    assert endpoint_of("openai", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}).headers == {}
    assert endpoint_of("ollama", {}).url == "http://127.0.0.1:11434/v1/chat/completions"
    assert endpoint_of("anthropic", {"ANTHROPIC_API_KEY": "k"}).url == "https://api.anthropic.com/v1/messages"
