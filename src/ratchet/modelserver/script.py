"""Scripts: the turns of one model, what its clients sent, and reading them from TOML or JSON."""

from __future__ import annotations

import itertools
import json
import re
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.kernel import ConfigError, Misuse, RatchetError, is_name
from ratchet.modelserver.turn import ChatMessage, ScriptedCall, Tokens, Turn

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


_HINT = "docs/model-server.md describes the file"


@dataclass(frozen=True, slots=True)
class ScriptFile:
    """A script that was read from a file; its name is the file's unless it says another."""

    name: str
    turns: tuple[Turn, ...]


def read_script(path: Path) -> ScriptFile:
    """Read a script. Raises `ConfigError` naming the file, the turn and the key that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(
            f"the script {path} cannot be read: {error.strerror}", hint="name a script that is there"
        ) from None
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigError(f"the script {path} is not {kind}: {error}", hint=_HINT) from None
    if not isinstance(document, dict) or not isinstance(document.get("turns"), list):
        raise ConfigError(f"the script {path} has no list of turns", hint=_HINT)
    if unknown := document.keys() - {"name", "turns"}:
        raise ConfigError(f"{path}: {min(unknown)!r} is unknown; a script has name and turns", hint=_HINT)
    name = document.get("name", path.stem.lower())
    if not isinstance(name, str) or not is_name(name):
        raise ConfigError(f"{path}: {name!r} cannot name a script", hint='give it one: name = "edit"')
    turns = tuple(_turn(path, text, number, given) for number, given in enumerate(document["turns"], 1))
    return ScriptFile(name, turns)


def _turn(path: Path, text: str, number: int, given: Any) -> Turn:
    from pydantic import TypeAdapter, ValidationError

    if isinstance(given, dict) and given.get("usage") is False:
        given = {**given, "usage": None}  # TOML has no null
    try:
        _check_keys(given)
        # As JSON, since only there may a list stand for a tuple although numbers must be numbers.
        return TypeAdapter(Turn).validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        complaint = _complaint(error.errors()[0])
    except Misuse as error:
        complaint = str(error)
    except TypeError:
        complaint = "a date or a time is no value of a turn"
    place = f"{path}{_line(text, number, complaint.split()[0])}: turn {number}"
    raise ConfigError(f"{place}: {complaint}", hint=_HINT) from None


def _check_keys(turn: Any) -> None:
    """Raise `Misuse` for the first key that does not exist."""
    if not isinstance(turn, dict):
        raise Misuse(f"{turn!r} is not a table")
    calls = turn.get("calls")
    inside = [("calls.", ScriptedCall, call) for call in (calls if isinstance(calls, list) else [])]
    for prefix, kind, given in [("", Turn, turn), ("usage.", Tokens, turn.get("usage")), *inside]:
        known = [each.name for each in fields(kind)]
        if isinstance(given, dict) and (unknown := [key for key in given if key not in known]):
            raise Misuse(f"{prefix}{unknown[0]} is unknown; there are: {', '.join(known)}")


def _complaint(problem: ErrorDetails) -> str:
    # Between the keys there are numbers of a list and names of types.
    keys = {each.name for kind in (Turn, ScriptedCall, Tokens) for each in fields(kind)}
    place = ".".join(str(part) for part in problem["loc"] if part in keys)
    if problem["type"] == "missing":
        return f"{place} is missing"
    return f"{place} is {problem['input']!r}; it {re.sub('^(Input|Value) should', 'must', problem['msg'])}"


def _line(text: str, number: int, key: str) -> str:
    """`:12` for the line of that key of the turn in a TOML text, or of the turn; nothing where it is not found."""
    turn, found = 0, ""
    for at, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[\[\s*turns\s*\]\]", line):
            turn += 1
            if turn == number:
                found = f":{at}"
        elif turn == number and re.match(rf"\s*(\[\[?turns\.)?{re.escape(key.split('.')[0])}\b", line):
            return f":{at}"
    return found


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
    messages: tuple[ChatMessage, ...] = field(default=(), repr=False)
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


def _joined(messages: Iterable[ChatMessage]) -> str:
    return "\n".join(each.text for each in messages)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"…{text[-_SHOWN:]}"
