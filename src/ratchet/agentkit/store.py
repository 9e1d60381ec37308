"""The state of an agent: a JSON object that many processes and threads change, and every state it ever had."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ratchet.agentkit.database import Change, Database, connected
from ratchet.agentkit.draft import GONE, Draft
from ratchet.agentkit.errors import Misused, StateDamaged, StateExists, StateInvalid, StateMissing, StateMoved
from ratchet.agentkit.files import Hold, held, read_whole
from ratchet.agentkit.json_files import STATE, earlier_states, present_state
from ratchet.agentkit.logs import surroundings
from ratchet.agentkit.schema import check_change, check_item, check_state, first_fault
from ratchet.agentkit.values import plain, plain_value, text_of

__all__ = ["StateStore", "check_state", "first_fault", "state"]

SCHEMA = "state_schema.json"
SHARED = "state.path"
"""Beside the code of a version: where its state lies that it shares with others. Only Ratchet writes it."""
_LONGEST_NAME = 200
_ELSEWHERE = re.compile(r"\.\./states/[0-9a-f]{4,64}", re.ASCII)


class _Blocks(threading.local):
    """The blocks of `with state as s` that this thread is in."""

    def __init__(self) -> None:
        self.open: list[contextlib.AbstractContextManager[dict[str, Any]]] = []


_blocks = _Blocks()


@dataclass(frozen=True, slots=True)
class StateStore:
    """The state in `directory`: `state.db`, an SQLite file, checked against `state_schema.json`.

    Safe for any number of processes and threads. A `state.json` that lies there is what it begins with. The versions
    of an agent share one: then `state.path` says where it lies, and the schema is that of each version.
    """

    directory: Path
    patience: float | None = None
    """How many seconds to wait for the lock before `StateBusy`; `None` waits as long as it takes."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "directory", Path(self.directory))

    def __enter__(self) -> dict[str, Any]:
        """`with state as s:` is `with state.edit() as s:`."""
        block = self.edit()
        draft = block.__enter__()
        _blocks.open.append(block)
        return draft

    def __exit__(self, *failure: Any) -> bool | None:
        return _blocks.open.pop().__exit__(*failure)

    def read(self) -> dict[str, Any]:
        """The present state, without waiting for a writer. Raises `StateMissing` and `StateDamaged`."""
        database = self._opened()
        with database.reading():
            return {key: json.loads(database.text(key) or "null") for key in database.keys()}  # noqa: SIM118 - no dict

    def get(self, key: str, default: Any = None) -> Any:
        """The value of one key, or `default`: the others are not read."""
        database = self._opened()
        with database.reading():
            text = database.text(key)
        return default if text is None else json.loads(text)

    @property
    def place(self) -> Path:
        """Where the file of the state lies. Raises `StateDamaged` if `state.path` says what it cannot."""
        content = read_whole(self.directory / SHARED, _LONGEST_NAME)
        if content is None:
            return self.directory
        where = content.decode("ascii", "replace").strip()
        if not _ELSEWHERE.fullmatch(where):
            raise StateDamaged(
                f"{self.directory / SHARED} leads to no state: {where!r}", hint="restore the version's files"
            )
        return self.directory.parent / where.removeprefix("../")

    @property
    def size(self) -> int:
        """How many characters the whole state has as JSON, about."""
        database = self._opened()
        with database.reading():
            return database.size

    @contextlib.contextmanager
    def edit(self, by: str | None = None) -> Iterator[dict[str, Any]]:
        """Change the state: the block changes the dict that it is given, and no other process can meanwhile.

        When the block ends well, what it changed is checked and written, and its change is in the history as `by`'s
        (the name of this server, if not given). Nothing is written if the block raises, if nothing changed, or if
        the new state may not be stored (`StateInvalid`). Values are read when the block asks for them.
        """
        name = _name(by)
        with self._writing() as (database, hold):
            draft = Draft(database)
            try:
                yield draft
                hold.check()
                changed = draft.changed()
            finally:
                draft.end()
            _write(database, self._checked(database, changed), by=name)

    def increment(self, key: str, by: float = 1) -> Any:
        """Add `by` to the number at `key`, which is 0 if there is none; returns the new one.

        Costs the same however large the state is.
        """
        with self._writing() as (database, _):
            text = database.text(key)
            value = 0 if text is None else json.loads(text)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise StateInvalid(f"is {type(value).__name__}, not a number", path=f"state.{key}")
            new = plain_value(key, value + by)
            _write(database, self._checked(database, {key: new}), by=_name(None))
            return new

    def append(self, key: str, value: Any) -> int:
        """Add `value` behind the list at `key`, which is empty if there is none; returns its length.

        Costs the same however long the list is, but for the first time.
        """
        with self._writing() as (database, _):
            return self._append(database, key, value, unique=False)

    def add(self, key: str, value: Any) -> bool:
        """The same, but only if the list does not hold `value` yet; whether it did not."""
        with self._writing() as (database, _):
            return self._append(database, key, value, unique=True) > 0

    def replace(self, state: dict[str, Any], by: str | None = None) -> Change:
        """Make `state` the whole state, as one change; returns the newest change. For whoever manages versions: it also
        writes where another version has taken the state over."""
        name = _name(by)
        with self._writing(may_be_moved=True) as (database, _):
            return self._replace(database, plain(state), by=name)

    @property
    def moved(self) -> str | None:
        """Who has taken the state over, so that nothing may be written here."""
        database = self._opened()
        with database.reading():
            return database.moved

    @property
    def moved_at(self) -> datetime | None:
        """When that was."""
        database = self._opened()
        with database.reading():
            return database.moved_at

    @contextlib.contextmanager
    def handed_over(self, to: str | None) -> Iterator[dict[str, Any]]:
        """The present state, which no process can change during the block, nor after it if that ends well: then it is
        `to`'s. With `None` it may be written here again."""
        with self._writing(may_be_moved=True) as (database, _):
            yield self.read()
            database.move(to)

    def copy_to(self, directory: Path) -> None:
        """Lay the state with its history into `directory`, which is there and has none. It is on the disk then."""
        with self._held():
            database = self._taken_over()
            if database is None:
                raise self._missing()
            database.copy_to(directory)

    @contextlib.contextmanager
    def locked(self) -> Iterator[dict[str, Any]]:
        """The present state, which no process can change until the block ends. What is done to the dict is lost."""
        with self._writing(may_be_moved=True):
            yield self.read()

    def begin(self, state: dict[str, Any], by: str | None = None) -> Change:
        """Write the first state. Again with the same state it does nothing; raises `StateExists` for another one."""
        wanted, name = plain(state), _name(by)
        with self._held():
            database = self._taken_over() or self._connected(create=True)
            assert database is not None
            with database.writing(self.patience):
                if not database.is_begun:
                    check_state(wanted, self.directory / SCHEMA)
                    database.create()
                    return _write(database, wanted, by=name, always=True)
                if {key: text_of(value) for key, value in wanted.items()} != _texts(database):
                    raise StateExists(f"{database.path} exists already", hint="change it with edit()")
                return database.changes(1, None)[0]

    def history(self, limit: int = 20, before: int | None = None) -> list[Change]:
        """The newest changes, the newest first; only those below number `before`, if that is given."""
        try:
            database = self._opened()
        except StateMissing:
            return []
        with database.reading():
            return database.changes(limit, before)

    def at(self, number: int) -> dict[str, Any]:
        """The state after change `number`. Raises `NoSuchChange`."""
        database = self._opened()
        with database.reading():
            return {key: json.loads(text) for key, text in database.texts_at(number)}

    def restore(self, number: int, by: str | None = None) -> Change:
        """Make the state after change `number` the present one again, as a new change; returns the newest change.

        Raises `StateInvalid` if the present schema refuses that state.
        """
        name = _name(by)
        with self._writing() as (database, _):
            wanted = {key: json.loads(text) for key, text in database.texts_at(number)}
            return self._replace(database, wanted, by=name, restored=number)

    def _replace(
        self, database: Database, wanted: dict[str, Any], *, by: str | None, restored: int | None = None
    ) -> Change:
        changed = _changes(database, wanted)
        if not changed:
            return database.changes(1, None)[0]
        check_state(wanted, self.directory / SCHEMA)
        return _write(database, changed, by=by, restored=restored)

    def _append(self, database: Database, key: str, value: Any, *, unique: bool) -> int:
        """The length of the list then; 0 if it holds the value already."""
        length = self._spread(database, key)
        copied = plain_value(key, [value])[0]
        text = text_of(copied)
        if unique and database.contains(key, text):
            return 0
        number = _change(database, by=_name(None)).number
        database.append(key, length, text, number)
        check_item(
            key,
            length,
            copied,
            unique=unique,
            whole=lambda: _whole(database, {}),
            path=self.directory / SCHEMA,
        )
        return length + 1

    def _spread(self, database: Database, key: str) -> int:
        """See to it that the list at `key` is one that grows by rows; its length."""
        length = database.length(key)
        if length is not None:
            return length
        text = database.text(key)
        if text is None:
            # Part of the same change as its first item, but for the schema, which looks at both together.
            database.put(key, "[]", database.next_number())
            text = "[]"
        items = json.loads(text)
        if not isinstance(items, list):
            raise StateInvalid(f"is {type(items).__name__}, not a list", path=f"state.{key}")
        database.spread(key, items)
        return len(items)

    def _checked(self, database: Database, changed: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those of the values that are new. Raises `StateInvalid` if the schema refuses the state with them."""
        new = {key: value for key, value in changed.items() if _text(value) != database.text(key)}
        if new:
            check_change(
                {key: value for key, value in new.items() if value is not GONE},
                [key for key, value in new.items() if value is GONE],
                lambda: _whole(database, new),
                self.directory / SCHEMA,
            )
        return new

    def _held(self) -> contextlib.AbstractContextManager[Hold]:
        place = self.place
        if not place.is_dir():
            raise StateMissing(f"{place} is no directory")
        return held(place / "state.lock", self.patience)

    @contextlib.contextmanager
    def _writing(self, *, may_be_moved: bool = False) -> Iterator[tuple[Database, Hold]]:
        """Alone with the state, in one transaction."""
        with self._held() as hold:
            database = self._taken_over()
            if database is None:
                raise self._missing()
            with database.writing(self.patience):
                if not may_be_moved and (to := database.moved) is not None:
                    raise StateMoved(
                        f"version {to[:12]} has taken the state over; nothing was written",
                        hint="call it again",
                    )
                yield database, hold

    def _opened(self) -> Database:
        database = self._connected(create=False)
        if database is not None and database.is_begun:
            return database
        if not self.place.is_dir() or not self._has_files():
            raise self._missing()
        with self._held():
            database = self._taken_over()
        if database is None:
            raise self._missing()
        return database

    def _connected(self, *, create: bool) -> Database | None:
        return connected(self.place, create=create)

    def _has_files(self) -> bool:
        place = self.place
        return any((place / name).exists() for name in (STATE, "state.history.jsonl"))

    def _taken_over(self) -> Database | None:
        """The file of the state, for who holds its lock. What older files hold is brought into it, all or nothing."""
        database = self._connected(create=False)
        if database is not None and database.is_begun:
            return database
        present = present_state(self.place)
        if present is None and not self._has_files():
            return None
        database = self._connected(create=True)
        assert database is not None
        with database.writing(self.patience):
            database.create()
            number = 0
            for earlier in earlier_states(self.place):
                if earlier.change.number <= number:
                    break
                number = database.change(earlier.change).number
                touched = earlier.touched
                keys = dict.fromkeys((*database.keys(), *earlier.state)) if touched is None else touched
                _put(database, {key: earlier.state.get(key, GONE) for key in keys}, number)
            if present is None and not number:
                raise self._missing()
            changed = {} if present is None else _changes(database, present)
            if changed or not number:
                _write(database, changed, by=None, recovered=True, always=True)
        return database

    def _missing(self) -> StateMissing:
        return StateMissing(
            f"the state in {self.place} does not exist",
            hint=f"begin() it, or put a {STATE} there to begin with",
        )


def _text(value: Any) -> str | None:
    return None if value is GONE else text_of(value)


def _texts(database: Database) -> dict[str, str | None]:
    return {key: database.text(key) for key in database.keys()}  # noqa: SIM118 - no dict


def _whole(database: Database, changed: Mapping[str, Any]) -> dict[str, Any]:
    """The state with what is about to be changed."""
    present = {key: json.loads(text or "null") for key, text in _texts(database).items()}
    return {key: value for key, value in (present | dict(changed)).items() if value is not GONE}


def _changes(database: Database, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What makes the present state the wanted one."""
    present = _texts(database)
    changed = {key: value for key, value in wanted.items() if text_of(value) != present.get(key)}
    return changed | dict.fromkeys(present.keys() - wanted.keys(), GONE)


def _put(database: Database, changed: Mapping[str, Any], number: int) -> None:
    for key, value in changed.items():
        text = _text(value)
        if text != database.text(key):
            database.put(key, text, number)


def _write(
    database: Database,
    changed: Mapping[str, Any],
    *,
    by: str | None,
    recovered: bool = False,
    restored: int | None = None,
    always: bool = False,
) -> Change:
    """Make a change, if there is something to change; the newest change."""
    if not changed and not always:
        return database.changes(1, None)[0]
    change = _change(database, by=by, recovered=recovered, restored=restored)
    _put(database, changed, change.number)
    return change


def _change(
    database: Database, *, by: str | None, recovered: bool = False, restored: int | None = None
) -> Change:
    number = database.next_number()
    return database.change(
        Change(number=number, at=datetime.now(UTC), by=by, recovered=recovered, restored=restored)
    )


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
        # Removed under our feet. The first to ask for the state is told that it is missing.
        return Path()


state = StateStore(_working_directory())
"""The state in the directory in which this process was started."""
