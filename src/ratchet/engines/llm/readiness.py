"""Looking whether a model could be asked, without paying for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ratchet.config.llm_settings import Prices
from ratchet.engines.engine import Readiness
from ratchet.engines.fault import Fault
from ratchet.engines.llm.account import candidate_price
from ratchet.engines.llm.choice import Candidate
from ratchet.engines.probe import Endpoint, probe


async def readiness(
    candidates: Sequence[Candidate], environment: Mapping[str, str], prices: Mapping[str, Prices]
) -> Readiness:
    """Ready when one of the models is; the others are named, each with what is the matter."""
    looks = await asyncio.gather(*(_look(each, environment) for each in candidates))
    detail = "; ".join(look.detail for look in looks)
    unpriced = next((each.model for each in candidates if candidate_price(each, prices) is None), None)
    if ready := [look for look in looks if look.ready]:
        return Readiness(True, detail, ready[0].mend, unpriced=unpriced, unproven=ready[0].unproven)
    return Readiness(False, detail, looks[0].mend, looks[0].failure)


async def _look(candidate: Candidate, environment: Mapping[str, str]) -> Readiness:
    variable = candidate.key_variable
    try:
        key = candidate.key_in(environment)
    except Fault as fault:
        return Readiness(False, f"{candidate.name}: {fault}", fault.hint, fault.failure)
    if candidate.needs_key and not key:
        return Readiness(False, f"{candidate.name}: {variable} is not set", f"export {variable}=…")
    kind = candidate.endpoint.kind
    url = f"{candidate.url}/v1" if kind == "anthropic" else candidate.url
    return await probe(
        Endpoint(
            candidate.name,
            url,
            key,
            candidate.model,
            candidate.names,
            speaks=kind,
            asks="messages" if kind == "anthropic" else "chat/completions",
        )
    )
