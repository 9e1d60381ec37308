"""The seam to whatever proposes changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ratchet.engines.failure import Failure
from ratchet.engines.session import Capabilities, Request, Session


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether an engine could be used now, and what to do if not.

    `failure` is how a session would fail if it is not ready. `unpriced` is the model whose price nobody knows, and
    `unproven` says why the look has not shown that a session would begin, although nothing speaks against it.
    """

    ready: bool
    detail: str
    mend: str | None = None
    failure: Failure = Failure.MISSING
    unpriced: str | None = None
    unproven: str | None = None


class Engine(Protocol):
    """Proposes changes. An engine holds no session of its own: two may run at once."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    async def propose(self, request: Request) -> Session:
        """Run one session to its end.

        Raises `SessionFailed` whenever there is nothing that may be judged, and `Misuse` for a request that this engine
        can never serve. Cancelling it ends every process it started before the cancellation is seen by the caller.
        """
        ...

    async def check(self) -> Readiness:
        """Look whether a session could start, without paying for one."""
        ...
