"""A described agent keeps the contract of an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.modelserver import ModelServer
from tests.engines.command_subject import CommandSubject
from tests.engines.conftest import Place
from tests.engines.contract import (
    EditingContract,
    StructuredContract,
    Subject,
    UsageContract,
)


class TestCommand(EditingContract, StructuredContract, UsageContract):
    @pytest.fixture
    def subject(self, place: Place, model_server: ModelServer, tmp_path: Path) -> Subject:
        return CommandSubject(place, model_server, tmp_path / "bin")
