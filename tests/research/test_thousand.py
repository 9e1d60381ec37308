"""The simulation of many slots: everything but the trials is real, and every slot is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.measures.simulation import simulated
from ratchet.config import load_settings
from ratchet.ledger.research import get_standing
from ratchet.ledger.runs import list_runs
from ratchet.runtime import open_ledger


@pytest.mark.soak
def test_trials_in_fifty_slots_are_all_recorded_at_a_cost_that_does_not_grow_with_the_slots(
    tmp_path: Path,
) -> None:
    place = {"home": str(tmp_path), "database_url": f"sqlite:///{tmp_path / 'ledger.db'}"}
    found = simulated(place, slots=50, trials=150, seconds=3600.0)
    assert found["trials"] == 150
    assert found["most_at_once"] == 50
    # With what begins and ends the run: what a trial costs the ledger does not grow with the slots.
    assert found["statements"] < 100 * 150
    with open_ledger(load_settings(place, env={})) as ledger, ledger.read() as tx:
        [run] = list_runs(tx, limit=5)
        assert str(run.status) == "completed"
        assert get_standing(tx, run.id).trials == 150
