"""Checking a task before money is spent: the contract, hostile recipes, and Ratchet itself with something broken."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.checker.attacks import check_attacks
    from ratchet.research.checker.bench import CheckPart, Grade, TaskCheck
    from ratchet.research.checker.conformance import check, check_conformance
    from ratchet.research.checker.faults import check_harness
else:
    __getattr__ = on_demand(__name__)
