"""Making the vectors of a file anew, with another embedder."""

from __future__ import annotations

import contextlib
from pathlib import Path

from ratchet.memory.embedder import Embedder
from ratchet.memory.sqlite.file import open_file, translated
from ratchet.memory.sqlite.rows import next_change

_BATCH = 256


def reembed_file(path: Path, embedder: Embedder) -> int:
    """All in one transaction: others wait, and after a crash everything is as it was. Returns how many."""
    with (
        contextlib.closing(open_file(path, embedder.name, embedder.dimension)) as connection,
        translated(path),
    ):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE entries SET change = ?", (next_change(connection),))
        connection.execute(
            "UPDATE state SET embedder = ?, dimension = ?", (embedder.name, embedder.dimension)
        )
        done = last = 0
        while batch := connection.execute(
            "SELECT number, text FROM entries WHERE number > ? ORDER BY number LIMIT ?", (last, _BATCH)
        ).fetchall():
            vectors = embedder.embed([text for _, text in batch])
            connection.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?)",
                [
                    (number, vector.astype("<f4").tobytes())
                    for vector, (number, _) in zip(vectors, batch, strict=True)
                ],
            )
            done += len(batch)
            last = batch[-1][0]
        connection.execute("COMMIT")
    return done
