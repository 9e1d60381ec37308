"""Scripted models behind the `llm` engine, and short requests for them."""

from __future__ import annotations

import pytest

from ratchet.modelserver import ModelServer
from tests.engines.conftest import Place
from tests.engines.llm.subject import LlmSubject


@pytest.fixture
def llm(place: Place, model_server: ModelServer) -> LlmSubject:
    return LlmSubject(place, model_server)
