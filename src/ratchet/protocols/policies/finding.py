"""Steps by what policies call them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ratchet.ledger.protocol_steps import ProtocolStep


def find_agent(agent: str, steps: Sequence[ProtocolStep]) -> ProtocolStep | None:
    """The first step of an agent; the whole name of a step, or its id, will do too."""
    of_agent = next((step for step in steps if step.agent == agent), None)
    return of_agent or next((step for step in steps if agent in (step.name, _id(step))), None)


def indexes_of(skipped: Iterable[int | str], steps: Sequence[ProtocolStep]) -> frozenset[int]:
    """The indexes that a policy means. A name that no step has means nothing."""
    numbers = {each for each in skipped if isinstance(each, int)}
    names = {each for each in skipped if isinstance(each, str)}
    named = {step.step_index for step in steps if names & {step.name, step.agent, _id(step)}}
    return frozenset(numbers | named)


def _id(step: ProtocolStep) -> str:
    found = step.spec.get("id") if isinstance(step.spec, dict) else None
    return found if isinstance(found, str) else step.name
