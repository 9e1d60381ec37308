"""Who uses a version: calls in flight, and sessions of clients that stay with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ratchet.agents.contract import Role

# A session is a few bytes here, and servers give them out as they like.
_MOST_SESSIONS = 10_000


@dataclass(slots=True)
class Session:
    """What a client began with one server; `used` is when it last called or was answered."""

    role: Role
    used: float


class Occupancy:
    """Calls and sessions of one version. `changed` is called when it becomes free.

    A call inside a session counts as a sign of life of the session and not by itself: older clients hold one request
    open for as long as they live, and that alone must not keep a version up.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.calls = 0
        self.used = time.monotonic()
        self._sessions: dict[tuple[Role, str], Session] = {}
        self._changed = changed

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    @property
    def is_free(self) -> bool:
        return not self.calls and not self._sessions

    def touch(self) -> None:
        self.used = time.monotonic()

    def knows(self, role: Role, session: str) -> bool:
        return (role, session) in self._sessions

    def enter(self, role: Role, session: str | None) -> None:
        self.touch()
        if session is None:
            self.calls += 1
        else:
            self._sign_of_life(role, session)

    def leave(self, role: Role, session: str | None) -> None:
        self.touch()
        if session is None:
            self.calls -= 1
            self._tell_if_free()
        else:
            self._sign_of_life(role, session)

    def open(self, role: Role, session: str) -> None:
        if len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[min(self._sessions, key=lambda each: self._sessions[each].used)]
        self._sessions[role, session] = Session(role, time.monotonic())

    def close(self, role: Role, session: str) -> None:
        if self._sessions.pop((role, session), None) is not None:
            self._tell_if_free()

    def forget(self, role: Role) -> None:
        """A server has ended, and with it what its sessions were."""
        self._keep({key: each for key, each in self._sessions.items() if each.role is not role})

    def forget_silent(self, seconds: float) -> None:
        since = time.monotonic() - seconds
        self._keep({key: each for key, each in self._sessions.items() if each.used > since})

    def _keep(self, sessions: dict[tuple[Role, str], Session]) -> None:
        if len(sessions) < len(self._sessions):
            self._sessions = sessions
            self._tell_if_free()

    def _sign_of_life(self, role: Role, session: str) -> None:
        known = self._sessions.get((role, session))
        if known is not None:
            known.used = time.monotonic()

    def _tell_if_free(self) -> None:
        if self.is_free:
            self._changed()
