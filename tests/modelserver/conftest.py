"""Real client libraries on the scripted server. A test's scripts are named after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import pytest

from ratchet.modelserver import ModelServer, Script, Turn
from tests.modelserver.fixtures import model_server

if TYPE_CHECKING:
    import anthropic
    import openai

__all__ = ["model_server"]

NAME = "test"


class Play(Protocol):
    def __call__(self, *turns: Turn) -> Script: ...


@pytest.fixture
def play(model_server: ModelServer) -> Play:
    """Puts a script where both clients ask."""

    def play(*turns: Turn) -> Script:
        return model_server.script(NAME, turns)

    return play


@pytest.fixture
def ask(model_server: ModelServer) -> Iterator[openai.OpenAI]:
    """OpenAI's client, without retries of its own."""
    import openai

    with openai.OpenAI(
        base_url=model_server.openai_url(NAME), api_key="key", max_retries=0, timeout=120
    ) as client:
        yield client


@pytest.fixture
def claude(model_server: ModelServer) -> Iterator[anthropic.Anthropic]:
    """Anthropic's client, without retries of its own."""
    import anthropic

    with anthropic.Anthropic(
        base_url=model_server.anthropic_url(NAME), api_key="key", max_retries=0, timeout=120
    ) as client:
        yield client
