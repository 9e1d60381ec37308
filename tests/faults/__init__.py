"""Fault simulation: see docs/faults.md."""
