"""What a person sees first: durable work that survives `kill -9`, and the four flows, each in a minute's work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.runtime import JobContext, Kinds


def add_kinds(kinds: Kinds) -> None:
    kinds.add("demo.primes", _count_primes)


async def _count_primes(job: JobContext) -> object:
    # Every process knows the kind; only the one that does the work needs what it is made of.
    from ratchet.demo.durability import count_primes_run

    return await count_primes_run(job)
