"""What can go wrong with the sandbox itself; what goes wrong inside it is told by `Finished`."""

from __future__ import annotations

from ratchet.kernel import Missing, RatchetError


class Refused(Missing):
    """The machine does not grant the isolation that was asked for, so nothing was run."""


class CannotStart(RatchetError):
    """The work could not be started: no such program, no such directory."""


class Broken(RatchetError):
    """A process of the sandbox itself died, so nothing is known of the run."""
