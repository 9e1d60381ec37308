"""When files that rows tell of are on disk."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.files import NewFile, name_files
from ratchet.kernel import LedgerUnavailable
from ratchet.ledger import Ledger
from ratchet.ledger.artifacts import INLINE_BYTES
from ratchet.ledger.check import check
from ratchet.ledger.tables import artifact_contents
from tests.ledger import disk_actors
from tests.ledger.conftest import MakeLedger
from tests.ledger.disks import CUT, JOURNALED, on_disk

COUNT = sa.text("SELECT count(*) FROM artifacts")
LARGE = b"x" * 100_000


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were waited for, in order."""
    files: list[str] = []
    watch(monkeypatch, lambda descriptor: files.append(str(Path(f"/proc/self/fd/{descriptor}").readlink())))
    return files


def watch(monkeypatch: pytest.MonkeyPatch, look: Callable[[int], object]) -> None:
    """Look before every wait for the disk."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, partial(_wait, getattr(os, name), look))


def _wait(really: Callable[[int], None], look: Callable[[int], object], descriptor: int) -> None:
    look(descriptor)
    really(descriptor)


def visible(ledger: Ledger) -> int:
    with ledger.read() as tx:
        return int(tx.connection.execute(COUNT).scalar_one())


def put(ledger: Ledger, *contents: bytes) -> list[str]:
    with ledger.write() as tx:
        return [ledger.artifacts.put(tx, content, name="it").sha256 for content in contents]


def stored(ledger: Ledger) -> list[Path]:
    return [path for _, path in ledger.artifacts.stored()]


def test_a_small_artifact_is_no_file_and_waits_for_its_transaction_alone(
    make_ledger: MakeLedger, waits: list[str]
) -> None:
    ledger = make_ledger("sqlite")
    edge = b"x" * INLINE_BYTES
    assert [ledger.artifacts.read(each) for each in put(ledger, b"small", b"", edge)] == [b"small", b"", edge]
    assert (waits, stored(ledger)) == ([], [])


def test_a_large_artifact_is_on_disk_with_its_name_before_its_row(
    make_ledger: MakeLedger, waits: list[str]
) -> None:
    ledger = make_ledger("sqlite")
    with ledger.write() as tx:
        large = ledger.artifacts.put(tx, io.BytesIO(LARGE), name="large")
        path = ledger.artifacts.path(large.sha256)
        # Each directory that was made is a name in the one above it.
        assert set(map(str, list(path.parents)[:4])) <= set(waits)
        assert "/incoming/" in waits[waits.index(str(ledger.artifacts.root.parent)) + 1]
        assert path.read_bytes() == LARGE
        # Another process may have named it just now, and is not done with its directory.
        waits.clear()
        ledger.artifacts.put(tx, LARGE, name="again")
        assert waits == [str(path.parent)]


def test_a_row_is_there_only_when_its_file_is_on_disk(
    make_ledger: MakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = make_ledger("sqlite")
    seen: list[tuple[int, bool]] = []
    named = ledger.artifacts.path(hashlib.sha256(LARGE).hexdigest())
    watch(monkeypatch, lambda _: seen.append((visible(ledger), named.exists())))
    put(ledger, LARGE)
    assert {rows for rows, _ in seen} == {0}
    # Nor has a file its name before its content is on disk.
    assert not seen[0][1]
    assert seen[-1][1]
    assert visible(ledger) == 1


def test_a_file_that_a_transaction_adds_is_on_disk_before_its_rows_can_be_seen(
    make_ledger: MakeLedger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ledger = make_ledger("sqlite")
    seen: list[tuple[int, str]] = []

    def look(descriptor: int) -> None:
        seen.append((visible(ledger), Path(f"/proc/self/fd/{descriptor}").readlink().name))

    watch(monkeypatch, look)
    with ledger.write() as tx:
        ledger.artifacts.put(tx, b"small", name="it")
        for content in (b"first", b"second"):
            tx.add_file(new_file(tmp_path, "named", content))
    assert seen[0] == (0, "temporary")
    assert sorted(seen[1:]) == sorted([(0, "new"), (0, tmp_path.name)])
    assert (tmp_path / "new" / "named").read_bytes() == b"second"
    assert visible(ledger) == 1


def new_file(directory: Path, name: str, content: bytes) -> NewFile:
    return NewFile(f"{directory}/new/{name}", f"{directory}/temporary", content, 0o600, Path.mkdir)


def test_a_file_that_cannot_be_put_on_disk_gives_no_row_and_is_not_left(
    make_ledger: MakeLedger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ledger = make_ledger("sqlite")

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    def add_file() -> None:
        with ledger.write() as tx:
            ledger.artifacts.put(tx, b"small", name="it")
            tx.add_file(new_file(tmp_path, "named", b"content"))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LedgerUnavailable, match="Input/output error"):
        put(ledger, LARGE)
    with pytest.raises(LedgerUnavailable, match="Input/output error"):
        add_file()
    monkeypatch.undo()
    assert (visible(ledger), stored(ledger), list(tmp_path.glob("temporary"))) == (0, [], [])
    put(ledger, LARGE)
    add_file()
    assert visible(ledger) == 2


def test_an_artifact_that_was_kept_as_a_small_file_is_read_as_before(ledger: Ledger) -> None:
    [sha256] = put(ledger, b"old")
    with ledger.artifacts.held():
        ledger.artifacts.keep(b"old")
    with ledger.write() as tx:
        tx.connection.execute(sa.delete(artifact_contents))
    assert ledger.artifacts.read(sha256) == b"old"
    assert check(ledger).findings == ()
    ledger.artifacts.path(sha256).unlink()
    assert [each.what for each in check(ledger).findings] == [f"artifact {sha256} is missing"]


@pytest.mark.soak
@pytest.mark.parametrize("feature", ["has_journal", "^has_journal"])
def test_a_power_cut_takes_nothing_away_that_a_row_tells_of(tmp_path: Path, feature: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    kept = on_disk(
        JOURNALED, disk, disk_actors.copy_while_writing, image=str(tmp_path / "image"), feature=feature
    )
    found = on_disk(CUT, disk, disk_actors.open_after_cut, image=str(tmp_path / "cut"))
    assert found == {"whole": kept, "named": True, "check": [], "fsck": ""}


@pytest.mark.parametrize("count", [1, 3, 150])
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_names_appear_with_their_content_and_directories_are_made(
    tmp_path: Path, count: int, place: str
) -> None:
    root = tmp_path
    if place == "memory":
        root = Path(f"/dev/shm/{tmp_path.parent.name}-{tmp_path.name}-{os.getpid()}")
        root.mkdir()
    try:
        names = []
        for number in range(count):
            (root / f"new{number}").write_text(str(number))
            names.append((str(root / f"new{number}"), str(root / f"in{number % 2}" / str(number))))
        name_files(names, lambda directory: directory.mkdir())
        assert [Path(name).read_text() for _, name in names] == [str(number) for number in range(count)]
        assert not list(root.glob("new*"))
    finally:
        if place == "memory":
            shutil.rmtree(root)
