"""The branch of a protocol in the clone that there is now."""

from __future__ import annotations

import contextlib

from ratchet.kernel import NotFound
from ratchet.ledger.protocols import get_protocol
from ratchet.protocols.stream import Blocked, Stream


def head_of(stream: Stream) -> str:
    """The newest commit that was kept. Raises `Blocked` when the branch is gone and cannot be brought back."""
    head = stream.clone.repository.ref(stream.protocol.ref) or _restored(stream)
    if head is None:
        raise Blocked(
            f"the branch {stream.protocol.name} is gone",
            event="branch_missing",
            hint="restore it, for instance from the origin, and resume",
        )
    return head


def _restored(stream: Stream) -> str | None:
    """The branch as it was pushed last, in a clone that was made anew; nothing if the origin has it otherwise."""
    with stream.job.ledger.read() as tx:
        pushed = get_protocol(tx, stream.protocol.run_id).pushed
    if pushed is None or stream.clone.origin is None:
        return None
    with contextlib.suppress(NotFound):
        if stream.clone.fetch(stream.protocol.name) == pushed:
            stream.clone.repository.advance(stream.protocol.ref, pushed, expected=None)
            with stream.job.write() as tx:
                stream.event(tx, "branch_restored", f"{pushed[:12]} was brought back from the origin")
            return pushed
    return None
