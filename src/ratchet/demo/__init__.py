"""What a person sees first: durable work that survives `kill -9`."""

from ratchet.demo.primes import add_kinds
from ratchet.demo.show import run_demo

__all__ = ["add_kinds", "run_demo"]
