"""What went wrong in a session, before it is known what the session came to."""

from __future__ import annotations

from ratchet.engines.failure import Failure, SessionFailed
from ratchet.engines.session import Session


class Fault(Exception):
    """Raised deep inside an engine; the engine adds what was used and said until then and raises `SessionFailed`."""

    def __init__(
        self,
        failure: Failure,
        message: str,
        *,
        hint: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.hint = hint
        self.retry_after = retry_after

    def failed(self, session: Session, *, worked: bool) -> SessionFailed:
        return SessionFailed(
            self.failure,
            str(self),
            session=session,
            hint=self.hint,
            retry_after=self.retry_after,
            worked=worked,
        )
