"""A verdict that cannot be had yet, because a person has to be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.kernel import Waiting

if TYPE_CHECKING:
    from ratchet.judges.judge import Judged


class AwaitingApproval(Waiting):
    """The run must rest until a person has decided.

    `finished` is what other judges said meanwhile: it is to be recorded, so that they need not be asked again.
    """

    def __init__(self, approval_id: int, finished: tuple[Judged, ...] = ()) -> None:
        super().__init__(
            f"approval {approval_id} is pending",
            hint=f"`ratchet approval show {approval_id}`, then approve or refuse it",
        )
        self.approval_id = approval_id
        self.finished = finished
