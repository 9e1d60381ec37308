"""Looking at the machine: what Ratchet needs, what is there, and how to fix what is not.

A probe returns checks and never raises for a thing that is absent.
"""

from ratchet.doctor.home import addresses, artifact_store, engines, extras, ledger
from ratchet.doctor.machine import Probe, ProbeCheck, Status, disk, git, python, run_all, sandbox_layers
