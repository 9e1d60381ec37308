"""The state of an agent: one JSON file that many processes and threads change, and every state it ever had."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.agentkit.errors import (
    Misused,
    SchemaInvalid,
    StateDamaged,
    StateExists,
    StateInvalid,
    StateMissing,
)
from ratchet.agentkit.files import Hold, held, read_whole, replace_whole
from ratchet.agentkit.history import Change, History, HistoryEntry, digest_of
from ratchet.agentkit.logs import surroundings
from ratchet.agentkit.values import MOST_BYTES, canonical, difference, parsed, plain

if TYPE_CHECKING:
    from jsonschema.protocols import Validator


_MOST_BYTES = 4 * 1024 * 1024
_SHOWN_CHARS = 300


def check_state(state: dict[str, Any], path: Path) -> None:
    """Raise `StateInvalid` if `state` is not what the schema at `path` says, `SchemaInvalid` if that says nothing."""
    raw = read_whole(path, _MOST_BYTES)
    if raw is None:
        raise SchemaInvalid(f"{path} does not exist", hint="write a JSON Schema there; {} allows every state")
    found = first_fault(state, raw)
    if found is not None:
        where, what = found
        raise StateInvalid(f"is refused by {path.name}: {what}", path=f"state{where}")


def first_fault(value: Any, schema: bytes) -> tuple[str, str] | None:
    """Where and why a value is not what a schema says. Raises `SchemaInvalid`."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(_validator(schema).iter_errors(value))
    except (Unresolvable, re.error, RecursionError) as broken:
        raise SchemaInvalid(f"the schema cannot be followed: {broken}"[:_SHOWN_CHARS]) from broken
    if error is None:
        return None
    where = error.json_path.removeprefix("$")
    return where[:_SHOWN_CHARS], error.message[:_SHOWN_CHARS]


@functools.lru_cache(maxsize=8)
def _validator(raw: bytes) -> Validator:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing.jsonschema import EMPTY_REGISTRY

    try:
        schema = json.loads(raw)
        if not isinstance(schema, dict):
            raise SchemaInvalid("the schema is no object", hint="write a JSON Schema; {} allows everything")
        kind = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
    except SchemaError as error:
        raise SchemaInvalid(f"the schema is no JSON Schema: {error.message[:_SHOWN_CHARS]}") from error
    except (ValueError, RecursionError) as error:
        raise SchemaInvalid(f"the schema is not JSON: {error}") from error
    # Only what the schema itself holds: a reference to elsewhere must not be fetched.
    return kind(schema, registry=EMPTY_REGISTRY)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state, how long it is as text, and by what it is known."""

    state: dict[str, Any]
    size: int
    digest: str

    @classmethod
    def checked(cls, state: object) -> Snapshot:
        """A copy of `state`. Raises `StateInvalid` for what may not be stored."""
        return cls.of(plain(state))

    @classmethod
    def of(cls, state: dict[str, Any]) -> Snapshot:
        text = canonical(state)
        return cls(state, len(text), digest_of(text))

    def entry(self, change: Change, last: HistoryEntry | None, before: dict[str, Any] | None) -> HistoryEntry:
        """What the history is to hold; `before` is the state that `last` tells of.

        Only the difference, as long as all differences since the last whole state are shorter than a whole one: so
        to read any state is at most twice the work of reading it whole.
        """
        whole = HistoryEntry(change=change, digest=self.digest, state=self.state)
        if last is None or before is None:
            return whole
        steps = difference(before, self.state)
        weight = last.weight + len(json.dumps(steps))
        if weight >= self.size:
            return whole
        since = last.change.number if last.state is not None else last.since
        return HistoryEntry(change=change, digest=self.digest, since=since, weight=weight, steps=steps)


_LONGEST_NAME = 200
# A small state is laid out for people; laying out a large one would cost more than writing it.
_READABLE_BYTES = 64 * 1024
# The file may be laid out more widely than the state is long.
_MOST_FILE_BYTES = 2 * MOST_BYTES


@dataclass(frozen=True, slots=True)
class StateStore:
    """The state in `directory`: `state.json`, checked against `state_schema.json`, with `state.history.jsonl`.

    Safe for any number of processes and threads, as long as they all change it through here.
    """

    directory: Path
    patience: float | None = None
    """How many seconds to wait for the lock before `StateBusy`; `None` waits as long as it takes."""

    def read(self) -> dict[str, Any]:
        """The present state, without waiting for anyone. Raises `StateMissing` and `StateDamaged`."""
        found = self._found()
        if found is None:
            raise self._missing()
        return found

    @contextlib.contextmanager
    def edit(self, by: str | None = None) -> Iterator[dict[str, Any]]:
        """Change the state: the block changes the dict that it is given, and nobody else can meanwhile.

        When the block ends well, the new state is checked and written, and its change is in the history as `by`'s
        (the name of this server, if not given). Nothing is written if the block raises, if nothing changed, or if
        the new state may not be stored (`StateInvalid`).
        """
        name = _name(by)
        with self._held() as hold:
            before = self.read()
            last = self._caught_up(before)
            draft = plain(before)
            yield draft
            hold.check()
            after = Snapshot.checked(draft)
            if after.digest != last.digest:
                self._write(after, last, by=name, before=before)

    @contextlib.contextmanager
    def locked(self) -> Iterator[dict[str, Any]]:
        """The present state, which nobody can change until the block ends. What is done to the dict is lost."""
        with self._held():
            yield self.read()

    def begin(self, state: dict[str, Any], by: str | None = None) -> Change:
        """Write the first state. Again with the same state it does nothing; raises `StateExists` for another one."""
        wanted = Snapshot.checked(state)
        name = _name(by)
        with self._held():
            present = self._found()
            if present is None:
                return self._write(wanted, self._history.fixed(None), by=name).change
            last = self._caught_up(present)
            if last.digest != wanted.digest:
                raise StateExists(f"{self._path} exists already", hint="change it with edit()")
            return last.change

    def history(self, limit: int = 20, before: int | None = None) -> list[Change]:
        """The newest changes, the newest first; only those below number `before`, if that is given."""
        return self._history.newest(limit, before)

    def at(self, number: int) -> dict[str, Any]:
        """The state after change `number`. Raises `NoSuchChange`."""
        return self._history.state_at(number)

    def restore(self, number: int, by: str | None = None) -> Change:
        """Make the state after change `number` the present one again, as a new change; returns the newest change.

        Raises `StateInvalid` if the present schema refuses that state. Works too where `state.json` is gone or
        damaged.
        """
        name = _name(by)
        with self._held():
            try:
                present = self._found()
            except StateDamaged:
                present = None
            last = self._history.fixed(None) if present is None else self._caught_up(present)
            wanted = Snapshot.checked(self._history.state_at(number))
            if present is not None and last is not None and last.digest == wanted.digest:
                return last.change
            return self._write(wanted, last, by=name, restored=number).change

    @property
    def _path(self) -> Path:
        return self.directory / "state.json"

    @property
    def _history(self) -> History:
        return History(self.directory / "state.history.jsonl")

    def _held(self) -> contextlib.AbstractContextManager[Hold]:
        if not self.directory.is_dir():
            raise StateMissing(f"{self.directory} is no directory")
        return held(self.directory / "state.lock", self.patience)

    def _found(self) -> dict[str, Any] | None:
        raw = read_whole(self._path, _MOST_FILE_BYTES)
        try:
            return None if raw is None else parsed(raw)
        except StateInvalid as error:
            raise StateDamaged(
                f"{self._path} cannot be used: {error.message}",
                hint="restore() an earlier state from its history",
            ) from error

    def _missing(self) -> StateMissing:
        return StateMissing(f"{self._path} does not exist", hint="begin() it, or restore() an earlier state")

    def _caught_up(self, present: dict[str, Any]) -> HistoryEntry:
        """The last entry of the history, which tells of the present state; if it did not, one is added."""
        found = Snapshot.of(present)
        last = self._history.fixed(found.digest)
        if last is not None and last.digest == found.digest:
            return last
        entry = found.entry(_change(last, by=None, recovered=True), None, None)
        with self._history.adding(entry):
            pass
        return entry

    def _write(
        self,
        wanted: Snapshot,
        last: HistoryEntry | None,
        *,
        by: str | None,
        before: dict[str, Any] | None = None,
        restored: int | None = None,
    ) -> HistoryEntry:
        """Make a state the present one; `before` is the one that `last` tells of, if what changed is to be kept."""
        check_state(wanted.state, self.directory / "state_schema.json")
        change = _change(last, by=by, restored=restored)
        entry = wanted.entry(change, last, before)
        with self._history.adding(entry):
            replace_whole(self._path, _laid_out(wanted.state))
        return entry


def _change(
    last: HistoryEntry | None, *, by: str | None, recovered: bool = False, restored: int | None = None
) -> Change:
    number = 1 if last is None else last.change.number + 1
    return Change(number=number, at=datetime.now(UTC), by=by, recovered=recovered, restored=restored)


def _laid_out(state: dict[str, Any]) -> bytes:
    text = json.dumps(state, separators=(",", ":"), ensure_ascii=False)
    if len(text) <= _READABLE_BYTES:
        text = json.dumps(state, indent=2, ensure_ascii=False)
    return f"{text}\n".encode()


def _name(by: str | None) -> str | None:
    name = surroundings().role if by is None else by
    if name is not None and not (0 < len(name) <= _LONGEST_NAME and name.isprintable()):
        raise Misused(
            f"{name[:80]!r} cannot be the name of who changed the state", hint="a short word will do"
        )
    return name


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        # Removed under our feet. Whoever asks for the state is told that it is missing.
        return Path()


state = StateStore(_working_directory())
"""The state in the directory in which this process was started."""
