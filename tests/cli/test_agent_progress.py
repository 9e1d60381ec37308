from __future__ import annotations

import pytest

from ratchet.cli.progress import progress
from ratchet.kernel import EventId
from ratchet.ledger import Event


def test_each_stage_of_an_agent_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("making greeter", quiet=False) as hear:
        for stage in ("session", "checking", "pushed", "placed", "a new one"):
            hear(Event(EventId(1), 0, "agent.stage", "test", message=stage))
    assert capsys.readouterr().err.splitlines() == [
        "the engine writes it",
        "its tests run, its servers start and are called",
        "its commit is stored",
        "its files are in place",
        "a new one",
    ]
