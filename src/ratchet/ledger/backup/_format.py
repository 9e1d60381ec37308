"""The file that a backup is: a gzipped tar with these members in this order.

    manifest.json          what it is a backup of: format, schema, version, time
    tables/<table>.<n>     rows as JSON lines, in parts of a few megabytes
    artifacts/<sha256>     their contents, by rising hash
    contents.json          what was written before: rows and hashes. Last, so that a file that was cut off has none

Every name can be foretold, so a member that is not expected is one too many.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from ratchet.ledger.tables import artifact_contents, metadata

# A change that an older Ratchet cannot read raises it.
FORMAT = 1
MANIFEST = "manifest.json"
CONTENTS = "contents.json"
# Room for millions of rows in parts; a real one is a thousand times smaller.
MAX_JSON_BYTES = 64 * 1024 * 1024
PART_BYTES = 4 * 1024 * 1024
MAX_ROW_BYTES = 256 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
# Far above what a ledger reaches, and far enough below 64 bits to count on from there.
MAX_NUMBER = 2**62

# In an order in which each row finds those it names. Contents of artifacts are members of their own.
TABLES = tuple(table for table in metadata.sorted_tables if table is not artifact_contents)

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Page(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Manifest(_Page):
    """What the file is a backup of."""

    format: int
    schema_revision: str
    ratchet_version: str
    taken_at: int
    counters: dict[str, Annotated[int, Field(ge=0, lt=MAX_NUMBER)]]


class Part(_Page):
    """Some rows of one table."""

    table: str
    rows: NonNegativeInt
    sha256: Sha256


class Contents(_Page):
    """Everything between the two pages. `left_out` are artifacts that the ledger itself had lost."""

    parts: list[Part]
    artifacts: NonNegativeInt
    artifact_bytes: NonNegativeInt
    left_out: list[Sha256]

    def rows(self) -> dict[str, int]:
        """How many rows there are of each table."""
        total: Counter[str] = Counter()
        for part in self.parts:
            total[part.table] += part.rows
        return dict(total)


def part_name(table: str, number: int) -> str:
    return f"tables/{table}.{number}"


def artifact_name(sha256: str) -> str:
    return f"artifacts/{sha256}"
