"""A run with real work in it: counting primes, block by block, each block a durable step."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from ratchet.kernel import AttemptId, RunId
from ratchet.ledger import Transaction
from ratchet.runtime import JobContext, Kinds, Runtime, complete_run, enter_run, run_step, start_run

KIND = "demo.primes"


def add_kinds(kinds: Kinds) -> None:
    kinds.add(KIND, count_primes_run)


def start(tx: Transaction, runtime: Runtime, name: str, *, blocks: int, size: int) -> RunId:
    return start_run(tx, runtime, KIND, kind="workflow", name=name, spec={"blocks": blocks, "size": size})


async def count_primes_run(job: JobContext) -> Any:
    """Count the primes below blocks × size. Started again, it goes on after the last finished block."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    size = run.spec["size"]
    total = 0
    for block in range(run.spec["blocks"]):
        work = functools.partial(_count_block, block * size, (block + 1) * size)
        total += await run_step(
            job, f"block-{block:02}", work, spec={"from": block * size, "to": (block + 1) * size}
        )
    result = {"primes": total, "below": run.spec["blocks"] * size}
    with job.write() as tx:
        complete_run(tx, job.run_id, result)
    return result


async def _count_block(low: int, high: int, _attempt: AttemptId) -> int:
    return await asyncio.to_thread(count_primes, low, high)


def count_primes(low: int, high: int) -> int:
    """How many primes there are in [low, high), by trial division: slow on purpose, to leave time to kill it."""
    return sum(1 for number in range(max(low, 2), high) if _is_prime(number))


def _is_prime(number: int) -> bool:
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 1
    return True
