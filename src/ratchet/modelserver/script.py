"""Scripts: the turns of one model, and what its clients sent."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratchet.kernel import Misuse, RatchetError, is_name
from ratchet.modelserver.turn import Turn
from ratchet.modelserver.wire import Message

Ask = Callable[[dict[str, Any]], Turn]
_SHOWN = 500


class NoTurn(RatchetError):
    """The script has no answer to this request."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as a client sent it. Header names are in lower case; `at` is in seconds since 1970."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    at: float
    messages: tuple[Message, ...] = field(default=(), repr=False)
    tools: tuple[str, ...] = field(default=(), repr=False)

    @property
    def newest(self) -> str:
        """What the user or the tools said since the model spoke last."""
        since = itertools.takewhile(lambda each: each.speaker != "assistant", reversed(self.messages))
        return _joined(reversed([each for each in since if each.speaker in ("user", "tool")]))

    @property
    def said(self) -> str:
        """All that the user and the tools have said."""
        return _joined(each for each in self.messages if each.speaker in ("user", "tool"))

    @property
    def results(self) -> tuple[str, ...]:
        """The results of tool calls in the conversation, oldest first."""
        return tuple(each.text for each in self.messages if each.speaker == "tool")


class Script:
    """Turns that are used up in order, by however many clients ask at the same time."""

    def __init__(
        self,
        name: str,
        turns: Sequence[Turn] | Ask,
        *,
        key: str | None = None,
        models: Sequence[str] | None = None,
    ) -> None:
        self.name = name
        self.key = key
        self.models = models
        self._ask = turns if callable(turns) else None
        self._turns = () if callable(turns) else tuple(turns)
        self._used = [0] * len(self._turns)
        self._requests: list[Seen] = []
        self._problems: list[str] = []
        # One request at a time looks for its turn and takes it; a function that answers may look at the script.
        self._lock = threading.RLock()

    def has_model(self, name: str) -> bool:
        return self.models is None or name in self.models

    @property
    def requests(self) -> list[Seen]:
        """Every request so far, in the order of arrival."""
        with self._lock:
            return list(self._requests)

    @property
    def problems(self) -> list[str]:
        """Requests that the script had no answer to, each as a sentence."""
        with self._lock:
            return list(self._problems)

    @property
    def left(self) -> int:
        """How many turns were never used; those that answer always count until their first use."""
        with self._lock:
            return sum(
                max(0, (1 if turn.repeat == "always" else turn.repeat) - used)
                for turn, used in zip(self._turns, self._used, strict=True)
            )

    def take(self, seen: Seen) -> tuple[int, Turn]:
        """The number of this request and the turn that answers it. Raises `NoTurn`."""
        with self._lock:
            self._requests.append(seen)
            number = len(self._requests)
            try:
                return number, self._asked(seen) if self._ask else self._next(seen)
            except NoTurn as error:
                self._problems.append(str(error))
                raise

    def _asked(self, seen: Seen) -> Turn:
        assert self._ask is not None
        try:
            turn = self._ask(seen.body)
        except Exception as error:
            raise NoTurn(f"script {self.name} raised {type(error).__name__}: {error}") from error
        if not isinstance(turn, Turn):
            raise NoTurn(f"script {self.name} returned {turn!r}, which is not a turn")
        return turn

    def _next(self, seen: Seen) -> Turn:
        waiting = []
        for index, turn in enumerate(self._turns):
            if turn.repeat == "always" or self._used[index] < turn.repeat:
                if _fits(turn, seen):
                    self._used[index] += 1
                    return turn
                waiting.append(turn)
        if not waiting:
            raise NoTurn(
                f"script {self.name} is used up after {sum(self._used)} turns",
                hint="give it more turns, or find out why the client asked once more",
            )
        wanted = "; ".join(_condition(turn) for turn in waiting)
        raise NoTurn(
            f"no turn of script {self.name} fits this request; waiting for {wanted}; it said: {_cut(seen.newest)}"
        )


def check_name(name: str) -> str:
    """`name` if it may name a script: it is a part of the URL and of ids."""
    if not is_name(name):
        raise Misuse(
            f"{name!r} cannot name a script", hint="use lower-case letters, digits, `-`, `_` and `.`"
        )
    return name


def _fits(turn: Turn, seen: Seen) -> bool:
    return (turn.when is None or turn.when in seen.newest) and (
        turn.within is None or turn.within in seen.said
    )


def _condition(turn: Turn) -> str:
    parts = [f"{name} {value!r}" for name in ("when", "within") if (value := getattr(turn, name)) is not None]
    return " and ".join(parts)


def _joined(messages: Iterable[Message]) -> str:
    return "\n".join(each.text for each in messages)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}"
