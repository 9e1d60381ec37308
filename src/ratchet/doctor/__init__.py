"""Looking at the machine: what Ratchet needs, what is there, and how to mend what is not.

A probe returns checks and never raises for a thing that is absent.
"""

from ratchet.doctor.addresses import addresses
from ratchet.doctor.check import Check, Probe, Status
from ratchet.doctor.disk import disk
from ratchet.doctor.engines import engines
from ratchet.doctor.extras import extras
from ratchet.doctor.ledger import ledger
from ratchet.doctor.programs import git, python
from ratchet.doctor.run import run_all
from ratchet.doctor.sandbox import sandbox_layers

__all__ = [
    "Check",
    "Probe",
    "Status",
    "addresses",
    "disk",
    "engines",
    "extras",
    "git",
    "ledger",
    "python",
    "run_all",
    "sandbox_layers",
]
