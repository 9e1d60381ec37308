"""Checking a task before money is spent: the contract, hostile recipes, and Ratchet itself with something broken."""

from ratchet.research.checking.attacks import check_attacks
from ratchet.research.checking.conformance import check_conformance
from ratchet.research.checking.faults import check_harness
from ratchet.research.checking.finding import Finding, Grade, Hear, Part
from ratchet.research.checking.suite import check

__all__ = [
    "Finding",
    "Grade",
    "Hear",
    "Part",
    "check",
    "check_attacks",
    "check_conformance",
    "check_harness",
]
