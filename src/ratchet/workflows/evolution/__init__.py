"""Tools that become better: noticed when they get worse, rewritten, judged, and promoted only if they prove better."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.evolution.batch import Opportunity, find_opportunities, optimise
    from ratchet.workflows.evolution.evolver import evolve
    from ratchet.workflows.evolution.health import EvolveDecision, note_look, should_evolve
    from ratchet.workflows.evolution.requests import (
        approve_version,
        evolve_tool,
        optimise_batch,
        roll_back_tool,
    )
else:
    __getattr__ = on_demand(__name__)
