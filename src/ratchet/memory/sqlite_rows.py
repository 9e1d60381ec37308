"""Reading and writing the rows of a memory, and its full-text index, inside a transaction that the caller has begun."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.memory.embedders import parts, query_words
from ratchet.memory.memory import FoundEntry, MemoryDraft, MemoryEntry, MemoryFilter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# So many matches are ranked at most, which bounds the time that a search takes however much is remembered.
_RANKED = 2_000


def match(connection: sqlite3.Connection, query: str, wanted: MemoryFilter, limit: int) -> list[Near]:
    """The entries that have any of the words, best first; equal ones by number."""
    words = _telling(connection, query_words(query))
    if not words:
        return []
    where, values = condition(wanted)
    # CROSS JOIN: the words are looked up first, whatever the planner thinks. The newest of too many are ranked.
    statement = f"""
        SELECT number, likeness FROM (
            SELECT entries.number, -bm25(words) AS likeness
            FROM words CROSS JOIN entries ON entries.number = words.rowid
            WHERE words MATCH ? AND {where}
            ORDER BY words.rowid DESC LIMIT {max(_RANKED, limit)}
        ) ORDER BY likeness DESC, number LIMIT ?
    """
    # Quoted, a word is a phrase of what the index makes of it, and nothing in it is syntax.
    phrases = " OR ".join(f'"{word}"' for word in words)
    return [Near(*row) for row in connection.execute(statement, [phrases, *values, limit])]


def _telling(connection: sqlite3.Connection, words: list[str]) -> list[str]:
    """The rarest words, as many as have few enough matches together. What most entries have tells nothing."""
    counted = sorted((_matches(connection, word), place, word) for place, word in enumerate(words))
    chosen: list[str] = []
    total = 0
    for count, _, word in counted:
        total += count
        if chosen and total > _RANKED:
            break
        chosen.append(word)
    return chosen


def _matches(connection: sqlite3.Connection, word: str) -> int:
    """At most how many entries have `word`. A guess where the index folds letters in another way: then 0."""
    counts = [
        connection.execute("SELECT doc FROM vocabulary WHERE term = ?", (part,)).fetchone() or (0,)
        for part in parts(word)
    ]
    return min((count for (count,) in counts), default=0)


_COLUMNS = """
    entries.id, kind, text, data, scope, created_at,
    (SELECT json_group_array(tag) FROM tags WHERE tags.number = entries.number)
"""
_FLOAT_BYTES = 4


class State(NamedTuple):
    embedder: str
    dimension: int
    change: int
    forgotten: int


class Near(NamedTuple):
    """The number of an entry and how near it is to what was looked for."""

    number: int
    likeness: float


def state(connection: sqlite3.Connection) -> State:
    row = connection.execute("SELECT embedder, dimension, change, forgotten FROM state").fetchone()
    if row is None:
        raise sqlite3.DatabaseError("its state is gone")
    return State(*row)


def condition(wanted: MemoryFilter) -> tuple[str, list[str]]:
    """What `wanted` is in SQL, and the values in it."""
    parts, values = ["1"], []
    for column in ("id", "kind", "scope"):
        value: str | None = getattr(wanted, column)
        if value is not None:
            parts.append(f"entries.{column} = ?")
            values.append(value)
    for tag in sorted(wanted.tags):
        parts.append("entries.number IN (SELECT number FROM tags WHERE tag = ?)")
        values.append(tag)
    return " AND ".join(parts), values


def holds(connection: sqlite3.Connection, draft: MemoryDraft) -> bool:
    """Whether the very same entry is there already, so that nothing need be written."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM entries WHERE id = ?", (draft.id,)).fetchone()
    if row is None:
        return False
    _, kind, text, data, scope, _, tags = row
    now = (kind, text, data, scope, frozenset(_parsed(tags)))
    return now == (draft.kind, draft.text, draft.data, draft.scope, draft.tags)


def write(
    connection: sqlite3.Connection, draft: MemoryDraft, vector: NDArray[np.float32], *, now: int
) -> None:
    """Add the entry, or put it in the place of the one with its id."""
    [number] = connection.execute(
        "INSERT INTO entries (id, kind, text, data, scope, created_at, change) VALUES (?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, text = excluded.text, data = excluded.data,"
        " scope = excluded.scope, change = excluded.change RETURNING number",
        (draft.id, draft.kind, draft.text, draft.data, draft.scope, now, next_change(connection)),
    ).fetchone()
    connection.execute(
        "INSERT OR REPLACE INTO vectors VALUES (?, ?)", (number, vector.astype("<f4").tobytes())
    )
    connection.execute("DELETE FROM tags WHERE number = ?", (number,))
    connection.executemany("INSERT INTO tags VALUES (?, ?)", [(tag, number) for tag in sorted(draft.tags)])


def delete(connection: sqlite3.Connection, wanted: MemoryFilter, *, kept_changes: int) -> int:
    """Delete what is wanted; deletions before the last `kept_changes` changes are no longer remembered."""
    change = next_change(connection)
    where, values = condition(wanted)
    count = connection.execute(f"DELETE FROM entries WHERE {where}", values).rowcount
    connection.execute("DELETE FROM deleted WHERE change <= ?", (change - kept_changes,))
    connection.execute("UPDATE state SET forgotten = max(forgotten, ?)", (change - kept_changes,))
    return count


def next_change(connection: sqlite3.Connection) -> int:
    [[change]] = connection.execute("UPDATE state SET change = change + 1 RETURNING change").fetchall()
    return int(change)


def numbers(connection: sqlite3.Connection, wanted: MemoryFilter) -> NDArray[np.int64] | None:
    """Those that have the id and all the tags that are wanted, or `None` if that does not matter."""
    parts = ["SELECT number FROM tags WHERE tag = ?" for _ in wanted.tags]
    values = sorted(wanted.tags)
    if wanted.id is not None:
        parts.append("SELECT number FROM entries WHERE id = ?")
        values.append(wanted.id)
    if not parts:
        return None
    import numpy as np

    # As one value: taken row by row, ten thousand cost as much as the whole search.
    query = f"SELECT json_group_array(number) FROM ({' INTERSECT '.join(parts)})"
    return np.array(json.loads(connection.execute(query, values).fetchone()[0]), dtype=np.int64)


def newest(connection: sqlite3.Connection, wanted: MemoryFilter, limit: int) -> Iterator[MemoryEntry]:
    where, values = condition(wanted)
    query = f"SELECT {_COLUMNS} FROM entries WHERE {where} ORDER BY entries.number DESC LIMIT ?"
    return map(_entry, connection.execute(query, [*values, limit]))


def found(connection: sqlite3.Connection, near: Sequence[Near]) -> list[FoundEntry]:
    """The entries of these numbers, in the same order."""
    query = (
        f"SELECT entries.number, {_COLUMNS} FROM entries"
        " WHERE entries.number IN (SELECT value FROM json_each(?))"
    )
    listed = json.dumps([each.number for each in near])
    by_number = {number: _entry(row) for number, *row in connection.execute(query, (listed,))}
    return [FoundEntry(by_number[each.number], each.likeness) for each in near]


def deleted_since(connection: sqlite3.Connection, change: int) -> Iterator[int]:
    return (
        number for (number,) in connection.execute("SELECT number FROM deleted WHERE change > ?", (change,))
    )


def vectors_since(
    connection: sqlite3.Connection, change: int, dimension: int
) -> Iterator[tuple[int, NDArray[np.float32], str, str | None]]:
    """The numbers and vectors of entries that have changed, with their kinds and scopes."""
    import numpy as np

    for number, vector, kind, scope in connection.execute(
        "SELECT number, vector, kind, scope FROM entries JOIN vectors USING (number) WHERE change > ?",
        (change,),
    ):
        if len(vector) != dimension * _FLOAT_BYTES:
            raise sqlite3.DatabaseError(f"row {number} has a vector of {len(vector)} bytes")
        yield number, np.frombuffer(vector, dtype="<f4"), kind, scope


def _entry(row: Sequence[Any]) -> MemoryEntry:
    id, kind, text, data, scope, created_at, tags = row
    return MemoryEntry(id, kind, text, frozenset(_parsed(tags)), _parsed(data), scope, created_at)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise sqlite3.DatabaseError(f"what should be JSON is not: {error}") from error
