"""Tools that become better: noticed when they get worse, rewritten, judged, and promoted only if they prove better."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.evolution.batch import optimise
    from ratchet.workflows.evolution.candidates import Opportunity, find_opportunities
    from ratchet.workflows.evolution.degradation import Decision
    from ratchet.workflows.evolution.looking import note_look, should_evolve
    from ratchet.workflows.evolution.run import evolve
    from ratchet.workflows.evolution.starting import evolve_tool, optimise_batch, roll_back_tool
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Decision",
    "Opportunity",
    "evolve",
    "evolve_tool",
    "find_opportunities",
    "note_look",
    "optimise",
    "optimise_batch",
    "roll_back_tool",
    "should_evolve",
]
