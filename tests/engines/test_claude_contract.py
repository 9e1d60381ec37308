"""The real Claude CLI, driven by its SDK, does what every engine must do."""

from __future__ import annotations

import pytest

from ratchet.modelserver import ModelServer
from tests.engines.claude_subject import ClaudeSubject
from tests.engines.conftest import Place
from tests.engines.contract import (
    EditingContract,
    OwnToolsContract,
    ResumableContract,
    StructuredContract,
    Subject,
    ToolsContract,
    UsageContract,
)


class TestClaude(
    UsageContract, EditingContract, StructuredContract, ResumableContract, ToolsContract, OwnToolsContract
):
    @pytest.fixture
    def subject(self, place: Place, model_server: ModelServer) -> Subject:
        return ClaudeSubject(place, model_server)
