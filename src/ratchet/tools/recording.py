"""A call of a tool as the ledger keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.ledger.database import now_ms
from ratchet.ledger.tools import CallRow
from ratchet.tools.call import Called, ToolUse


def call_row(
    tool_id: int,
    version_id: int,
    values: Mapping[str, Any],
    use: ToolUse,
    *,
    called: Called | None = None,
    error: str | None = None,
    run_id: int | None = None,
    step: str | None = None,
) -> CallRow:
    """What a call was given and came to: an answer, or an error."""
    return CallRow(
        tool_id=tool_id,
        version_id=version_id,
        ok=called is not None,
        error=error,
        wall_ms=use.wall_ms,
        cpu_ms=use.cpu_ms,
        peak_bytes=use.peak_bytes,
        cost_microusd=use.cost_microusd,
        tokens=use.tokens,
        input=dict(values),
        output=None if called is None else called.value,
        run_id=run_id,
        step=step,
        simulated=called is not None and called.simulated,
        at=now_ms(),
    )
