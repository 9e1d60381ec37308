"""What a person sees first: durable work that survives `kill -9`, and the four flows, each in a minute's work."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.demo.acts.primes import add_kinds
else:
    __getattr__ = on_demand(__name__)

__all__ = ["add_kinds"]
