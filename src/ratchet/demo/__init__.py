"""What a person sees first: durable work that survives `kill -9`, and the four flows, each in a minute's work."""

from ratchet.demo.acts.primes import add_kinds

__all__ = ["add_kinds"]
