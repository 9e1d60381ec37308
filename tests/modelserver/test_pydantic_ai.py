"""pydantic-ai on the scripted server, by each way that it speaks to OpenAI's protocols."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ratchet.modelserver import ModelServer, answer, call, say
from tests.modelserver.conftest import NAME, Play

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from pydantic_ai.models import Model


@pytest.fixture(params=["chat", "ollama", "responses"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_tool_is_called_and_its_result_is_sent(play: Play, model_server: ModelServer, kind: str) -> None:
    def double(number: int) -> int:
        return number * 2

    script = play(call("double", number=21), say("it is 42"))
    result = asyncio.run(_run(model_server, kind, tools=[double]))
    assert (result.output, result.usage.input_tokens) == ("it is 42", 200)
    assert script.requests[1].results == ("42",)


def test_wrong_structured_output_is_asked_for_again(play: Play, model_server: ModelServer, kind: str) -> None:
    from pydantic import BaseModel
    from pydantic_ai import NativeOutput

    class Score(BaseModel):
        score: float

    script = play(answer({"score": "high"}), answer({"score": 0.5}))
    result = asyncio.run(_run(model_server, kind, output_type=NativeOutput(Score), retries=1))
    assert result.output == Score(score=0.5)
    assert len(script.requests) == 2


async def _run(server: ModelServer, kind: str, **options: Any) -> Any:
    from openai import AsyncOpenAI
    from pydantic_ai import Agent

    async with AsyncOpenAI(base_url=server.openai_url(NAME), api_key="key", max_retries=0) as client:
        return await Agent(_model(kind, client), **options).run("go")


def _model(kind: str, client: AsyncOpenAI) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.ollama import OllamaProvider
    from pydantic_ai.providers.openai import OpenAIProvider

    if kind == "responses":
        return OpenAIResponsesModel("m", provider=OpenAIProvider(openai_client=client))
    provider = OllamaProvider if kind == "ollama" else OpenAIProvider
    return OpenAIChatModel("m", provider=provider(openai_client=client))
