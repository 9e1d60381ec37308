"""The Codex CLI keeps the contract of an engine."""

from __future__ import annotations

import pytest

from ratchet.modelserver import ModelServer
from tests.engines.codex_subject import CodexSubject
from tests.engines.conftest import Place
from tests.engines.contract import (
    EditingContract,
    ResumableContract,
    StructuredContract,
    Subject,
    ToolsContract,
    UsageContract,
)


class TestCodex(EditingContract, StructuredContract, ToolsContract, ResumableContract, UsageContract):
    @pytest.fixture
    def subject(self, place: Place, model_server: ModelServer) -> Subject:
        return CodexSubject(place, model_server)
