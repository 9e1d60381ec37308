"""Writing the members of a backup in their order."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import sqlalchemy as sa

from ratchet.kernel import LedgerCorrupt
from ratchet.ledger._columns import to_json
from ratchet.ledger.backup._format import (
    CONTENTS,
    MANIFEST,
    MAX_ROW_BYTES,
    PART_BYTES,
    Contents,
    Manifest,
    Part,
    artifact_name,
    part_name,
)


class Writer:
    """Adds members to an open archive and keeps account of them."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._parts: list[Part] = []
        self._left_out: list[str] = []
        self._artifacts = self._artifact_bytes = 0

    def add_manifest(self, manifest: Manifest) -> None:
        self._add_bytes(MANIFEST, manifest.model_dump_json(indent=2).encode())

    def add_rows(self, table: sa.Table, rows: Iterable[sa.RowMapping]) -> None:
        for number, lines in enumerate(_parts(rows)):
            content = b"".join(lines)
            self._add_bytes(part_name(table.name, number), content)
            digest = hashlib.sha256(content).hexdigest()
            self._parts.append(Part(table=table.name, rows=len(lines), sha256=digest))

    def add_artifact(self, sha256: str, content: bytes | Path) -> None:
        """Add what is in the database or in a file, unless it is missing or does not match its hash."""
        try:
            file = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
        except FileNotFoundError:
            self._left_out.append(sha256)
            return
        with file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                self._left_out.append(sha256)
                return
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            self._add(artifact_name(sha256), file, size)
        self._artifacts += 1
        self._artifact_bytes += size

    def add_contents(self) -> Contents:
        contents = Contents(
            parts=self._parts,
            artifacts=self._artifacts,
            artifact_bytes=self._artifact_bytes,
            left_out=self._left_out,
        )
        self._add_bytes(CONTENTS, contents.model_dump_json(indent=2).encode())
        return contents

    def _add_bytes(self, name: str, content: bytes) -> None:
        self._add(name, io.BytesIO(content), len(content))

    def _add(self, name: str, content: BinaryIO, size: int) -> None:
        member = tarfile.TarInfo(name)
        member.size = size
        self._tar.addfile(member, content)
        self._tar.members = []  # type: ignore[attr-defined]  # else it remembers every member


def _parts(rows: Iterable[sa.RowMapping]) -> Iterator[list[bytes]]:
    lines: list[bytes] = []
    size = 0
    for row in rows:
        lines.append(_line(row))
        size += len(lines[-1])
        if size >= PART_BYTES:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _line(row: sa.RowMapping) -> bytes:
    line = to_json(dict(row)).encode() + b"\n"
    if len(line) > MAX_ROW_BYTES:
        raise LedgerCorrupt(f"a row of {len(line)} bytes is too large to be backed up")
    return line
