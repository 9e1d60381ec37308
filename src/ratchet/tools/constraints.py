"""How often a tool may be called. Its other bounds, of memory and size, hold while it runs."""

from __future__ import annotations

from ratchet.kernel import Conflict, iso
from ratchet.ledger import Transaction
from ratchet.ledger.tools import take_start
from ratchet.tools.definition import Tool


class TooOften(Conflict):
    """The tool has been called as often as it may be within an hour. `free_at` is when it may be again (ms)."""

    http_status = 429

    def __init__(self, tool: str, per_hour: int, free_at: int) -> None:
        super().__init__(
            f"tool {tool} may be called {per_hour} times an hour, and it has been; it is free at {iso(free_at)}",
            hint="wait until then, or raise constraints.max_calls_per_hour in its definition",
        )
        self.tool = tool
        self.per_hour = per_hour
        self.free_at = free_at


def check_constraints(tx: Transaction, tool_id: int, tool: Tool, *, now: int | None = None) -> None:
    """Say that a call of the tool is about to start. Raises `TooOften` when it must not.

    What is said counts once it is committed, whatever becomes of the call: so no two callers overshoot, and one that
    dies has used its call. A tool without a limit costs nothing.
    """
    per_hour = tool.constraints.max_calls_per_hour
    if per_hour is None:
        return
    free_at = take_start(tx, tool_id, per_hour, tx.now if now is None else now)
    if free_at is not None:
        raise TooOften(tool.id, per_hour, free_at)
