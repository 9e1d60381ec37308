"""The `llm` engine keeps the contract of an engine, over each protocol that it speaks."""

from __future__ import annotations

import pytest

from ratchet.modelserver import ModelServer
from tests.engines.conftest import Place
from tests.engines.contract import (
    OwnToolsContract,
    ResumableContract,
    StructuredContract,
    Subject,
    ToolsContract,
    UsageContract,
)
from tests.engines.llm.subject import LlmSubject


@pytest.mark.parametrize("kind", ["openai", "anthropic", "ollama"])
class TestLlm(StructuredContract, ToolsContract, ResumableContract, UsageContract, OwnToolsContract):
    @pytest.fixture
    def subject(self, place: Place, model_server: ModelServer, kind: str) -> Subject:
        return LlmSubject(place, model_server, kind)
