"""What can go wrong between here and a forge. Each error says what to do; none carries a token."""

from __future__ import annotations

from ratchet.kernel import RatchetError


class ForgeError(RatchetError):
    """A forge cannot be asked, or did not do what it was asked."""

    http_status = 502


class NoForge(ForgeError):
    """The repository is on no forge that can be spoken to."""

    http_status = 409


class Unauthenticated(ForgeError):
    """There is no token, or the forge does not accept it."""


class Forbidden(ForgeError):
    """The token is good, but not for this."""


class RateLimited(ForgeError):
    """Too much was asked. `seconds` is when to ask again."""

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message, hint=f"ask again in {seconds:.0f} seconds")
        self.seconds = seconds


class NotThere(ForgeError):
    """The forge has no such repository or pull request, or does not show it to this token."""


class Unreachable(ForgeError):
    """The forge did not answer, or answered with an error of its own."""


class Refused(ForgeError):
    """The forge understood and said no."""
