"""Whether a model could be asked is found out without asking it."""

from __future__ import annotations

import asyncio

import pytest

from ratchet.engines import Engine, Readiness
from ratchet.modelserver import ModelServer
from tests.engines.conftest import Place
from tests.engines.contract import KEY
from tests.engines.llm.subject import LlmSubject


def check(engine: Engine) -> Readiness:
    return asyncio.run(engine.check())


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
def test_an_endpoint_that_lists_the_model_is_ready_and_was_not_asked(
    place: Place, model_server: ModelServer, kind: str
) -> None:
    llm = LlmSubject(place, model_server, kind)
    address = f"{llm.url}/v1" if kind == "anthropic" else llm.url
    told = f"local/scripted: {address} answers"
    assert check(llm.open()) == Readiness(True, told, unpriced="scripted")
    assert llm.script.requests == []


def test_a_model_that_is_not_listed_is_mentioned(llm: LlmSubject) -> None:
    assert check(llm.open(option="local/other")).detail.endswith("answers (it does not list this model)")


def test_ollama_must_have_the_model(place: Place, model_server: ModelServer) -> None:
    found = check(LlmSubject(place, model_server, "ollama").open(option="local/qwen3"))
    assert (found.ready, found.mend) == (False, "ollama pull qwen3")


def test_a_missing_key_is_told_with_its_variable(llm: LlmSubject) -> None:
    found = check(llm.open(environment={"MODEL_KEY": ""}))
    assert (found.ready, found.mend) == (False, "export MODEL_KEY=…")


def test_nobody_there_is_told_without_the_key(llm: LlmSubject) -> None:
    found = check(llm.cannot_connect())
    assert not found.ready
    assert "http://127.0.0.1:9/v1 cannot be reached" in found.detail
    assert KEY not in repr(found)


def test_one_of_several_is_enough(llm: LlmSubject) -> None:
    engine = llm.open(option="both", environment={"MODEL_KEY": ""})
    found = check(engine)
    assert found.ready
    assert "local/scripted: MODEL_KEY is not set; spare/scripted:" in found.detail
