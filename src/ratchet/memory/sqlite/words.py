"""Finding by words: the full-text index, ranked by BM25."""

from __future__ import annotations

import sqlite3

from ratchet.memory.entry import Filter
from ratchet.memory.sqlite.rows import Near, condition
from ratchet.memory.terms import parts, query_words

# So many matches are ranked at most, which bounds the time that a search takes however much is remembered.
_RANKED = 2_000


def match(connection: sqlite3.Connection, query: str, wanted: Filter, limit: int) -> list[Near]:
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
