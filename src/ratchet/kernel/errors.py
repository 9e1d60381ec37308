"""What can go wrong, as types.

Every error a person may meet derives from `RatchetError`. Its message names the offending value; `hint` names
the next step to take. `exit_code` is what the command line exits with, `http_status` what the API answers.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from ratchet.kernel.text import dollars


class RatchetError(Exception):
    """The root of Ratchet's own errors."""

    exit_code = 1
    http_status = 500

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def with_hint(error: RatchetError) -> str:
    """The message and the next step, in one text for a record."""
    return f"{error} ({error.hint})" if error.hint else str(error)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint that names what was probably meant."""
    # Only an error needs it, and it is slow to import.
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else None


_RESOURCES = {
    errno.EMFILE: "open files of this process",
    errno.ENFILE: "open files of this machine",
    errno.ENOMEM: "memory",
    errno.ENOSPC: "disk space, or of inotify watches",
    errno.EDQUOT: "disk quota",
}


# By SQLite's own numbers: NOMEM, FULL, and CANTOPEN, which is what it makes of too many open files.
_OF_SQLITE = {7: "memory", 13: "disk space", 14: "open files, or of access to a database file"}


# All that Python says of it.
_NO_THREAD = "can't start new thread"


def exhausted(error: BaseException | None) -> str | None:
    """What this machine has run out of, if the error comes from that: later, or elsewhere, the same work succeeds."""
    while error is not None:
        if isinstance(error, MemoryError):
            return _RESOURCES[errno.ENOMEM]
        if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
            return "threads or processes of this user"
        if isinstance(error, OSError) and error.errno in _RESOURCES:
            return _RESOURCES[error.errno]
        # The lowest byte is the kind of the error; loading its module would slow down every command.
        if (number := getattr(error, "sqlite_errorcode", 0) & 0xFF) in _OF_SQLITE:
            return _OF_SQLITE[number]
        if isinstance(error, BaseExceptionGroup):
            return next(filter(None, map(exhausted, error.exceptions)), None)
        error = error.__cause__
    return None


def exhaustion_in(said: str) -> OSError | None:
    """The error behind what a program said before it failed, if this machine had run out of something."""
    found = next((number for number in _RESOURCES if os.strerror(number) in said), None)
    return None if found is None else OSError(found, os.strerror(found))


class Misuse(RatchetError):
    """The caller asked for something that cannot be meant."""

    exit_code = 2
    http_status = 422


class ConfigError(Misuse):
    """A setting is unknown, malformed or out of range."""


class NotFound(RatchetError):
    """The thing named does not exist."""

    exit_code = 1
    http_status = 404

    def __init__(self, entity: str, key: object) -> None:
        super().__init__(f"{entity} {key} does not exist")
        self.entity = entity
        self.key = key


class Missing(RatchetError):
    """Something outside Ratchet that is needed is absent."""

    exit_code = 3
    http_status = 503


class Conflict(RatchetError):
    """The thing is not in a state that allows this."""

    http_status = 409


class IllegalTransition(Conflict):
    """A status change that the transition table does not have."""

    def __init__(self, entity: str, key: object, current: str, wanted: str, allowed: tuple[str, ...]) -> None:
        can = f"it can become {_listed(allowed)}" if allowed else "that is final"
        super().__init__(f"{entity} {key} is {current}, so it cannot become {wanted}; {can}")
        self.entity = entity
        self.key = key
        self.current = current
        self.wanted = wanted
        self.allowed = allowed


class StateChanged(Conflict):
    """Somebody else changed the status first."""

    def __init__(self, entity: str, key: object, expected: tuple[str, ...], current: str) -> None:
        super().__init__(
            f"{entity} {key} is {current}, not {_listed(expected)}: it was changed meanwhile",
            hint="look at it again and decide again",
        )
        self.entity = entity
        self.key = key
        self.expected = expected
        self.current = current


class Superseded(Conflict):
    """This delivery of a job no longer owns it: another worker took over, or the job was stopped."""


class Waiting(RatchetError):
    """The run cannot continue until something outside happens. Its job ends well; resuming the run starts another."""

    http_status = 409


class BudgetExceeded(RatchetError):
    """A strict budget is used up; or, if it is `held`, what is left of it is promised to attempts that run."""

    http_status = 402

    def __init__(
        self, scope: str, key: object, measure: str, used: float, limit: float, *, held: bool = False
    ) -> None:
        how = "promised to others" if held else "used up"
        super().__init__(
            f"the budget of {dollars(limit)} is {how} ({dollars(used)})"
            if (scope, measure) == ("run", "cost_usd")
            else f"the {measure} budget of {scope} {key} is {how}: {used:g} of {limit:g}",
            hint=f"raise budgets.{scope}.{measure}, or set budgets.policy to warn",
        )
        self.scope = scope
        self.key = key
        self.measure = measure
        self.used = used
        self.limit = limit
        self.held = held


class LedgerError(RatchetError):
    """The database cannot be used as it is."""

    http_status = 503


class LedgerCorrupt(LedgerError):
    """The database file is damaged or is not a ledger."""


class LedgerTooNew(LedgerError):
    """The database was written by a newer Ratchet."""


class LedgerUnavailable(LedgerError):
    """The database cannot be reached, is read-only, or its disk is full."""


def _listed(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
