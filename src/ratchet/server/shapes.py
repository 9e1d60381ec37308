"""The schemas of what several endpoints answer with: the ledger's own values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet import ledger
from ratchet.runtime.operations.jobs import JobAnswer
from ratchet.server.operation import shape_of

if TYPE_CHECKING:
    from ratchet.runtime.operations.jobs import JobAnswer as Job
    from ratchet.server.fields import Shape as Artifact
    from ratchet.server.fields import Shape as Attempt
    from ratchet.server.fields import Shape as Event
    from ratchet.server.fields import Shape as Run
    from ratchet.server.fields import Shape as Step
else:
    Artifact = shape_of(ledger.Artifact)
    Attempt = shape_of(ledger.Attempt)
    Event = shape_of(ledger.Event)
    Job = shape_of(JobAnswer)
    Run = shape_of(ledger.Run)
    Step = shape_of(ledger.Step)

__all__ = ["Artifact", "Attempt", "Event", "Job", "Run", "Step"]
