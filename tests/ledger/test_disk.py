"""When files that rows tell of are on disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.kernel import LedgerUnavailable
from ratchet.ledger import Ledger
from ratchet.ledger.disk import Unsettled, have_one_journal, name_files
from tests.ledger import disk_actors
from tests.ledger.conftest import MakeLedger
from tests.ledger.disks import JOURNALED, on_disk

COUNT = sa.text("SELECT count(*) FROM artifacts")


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were waited for, in order."""
    files: list[str] = []
    really = os.fsync

    def sync(descriptor: int) -> None:
        files.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    return files


def visible(ledger: Ledger) -> int:
    with ledger.read() as tx:
        return int(tx.connection.execute(COUNT).scalar_one())


def test_one_wait_serves_for_all_files_of_a_transaction_where_they_share_a_journal(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    image = str(tmp_path / "image")
    found = on_disk(JOURNALED, tmp_path / "disk", disk_actors.put_three, image=image, feature="has_journal")
    assert found["together"]
    assert (found["before"], found["waited"]) == ([], found["files"][-1:])
    assert found["contents"] == ["content 0", "content 1", "content 2"]


def test_each_is_waited_for_where_they_do_not(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    image = str(tmp_path / "image")
    found = on_disk(JOURNALED, tmp_path / "disk", disk_actors.put_three, image=image, feature="^has_journal")
    assert not found["together"]
    # The file before it has its name, and the directory that has the name then.
    contents, directories = found["waited"][0::2], found["waited"][1::2]
    assert all("/incoming/" in each for each in contents)
    assert directories == [str(Path(each).parent) for each in found["files"]]
    assert found["contents"] == ["content 0", "content 1", "content 2"]


def test_the_row_is_there_only_when_its_file_is_certain(
    make_ledger: MakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = make_ledger("sqlite")
    seen: list[int] = []
    really = os.fsync

    def sync(descriptor: int) -> None:
        seen.append(visible(ledger))
        really(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with ledger.write() as tx:
        ledger.artifacts.put(tx, b"new", name="it")
    assert seen
    assert set(seen) == {0}
    assert visible(ledger) == 1


def test_a_file_that_cannot_be_made_certain_gives_no_row(
    make_ledger: MakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = make_ledger("sqlite")

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(LedgerUnavailable, match="Input/output error"), ledger.write() as tx:
        ledger.artifacts.put(tx, b"new", name="it")
    monkeypatch.undo()
    assert visible(ledger) == 0


def test_content_that_somebody_else_has_not_settled_is_settled_with_ours(
    make_ledger: MakeLedger, synced: list[str]
) -> None:
    ledger = make_ledger("sqlite")
    with ledger.artifacts.held():
        sha256, _ = ledger.artifacts.keep(b"shared", unsettled=Unsettled())
    synced.clear()
    with ledger.write() as tx:
        ledger.artifacts.put(tx, b"shared", name="ours")
    assert synced == [str(ledger.artifacts.path(sha256))]


def test_the_newest_file_stands_for_those_that_joined_it(tmp_path: Path, synced: list[str]) -> None:
    early, late = Unsettled(), Unsettled()
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    early.add(str(tmp_path / "a"))
    late.add(str(tmp_path / "b"))
    late.join(early)
    early.join(late)
    late.settle()
    early.settle()
    late.settle()
    assert synced == [str(tmp_path / "b")] * 2


@pytest.mark.parametrize("count", [1, 3, 150])
@pytest.mark.parametrize("place", ["disk", "memory"])
def test_names_appear_with_their_content_and_directories_are_made(
    tmp_path: Path, count: int, place: str
) -> None:
    root = tmp_path
    if place == "memory":
        root = Path(f"/dev/shm/{tmp_path.parent.name}-{tmp_path.name}-{os.getpid()}")
        root.mkdir()
        assert not have_one_journal(str(root))
    try:
        names = []
        for number in range(count):
            (root / f"new{number}").write_text(str(number))
            names.append((str(root / f"new{number}"), str(root / f"in{number % 2}" / str(number))))
        unsettled = Unsettled()
        name_files(names, lambda directory: directory.mkdir(), unsettled)
        unsettled.settle()
        assert [Path(name).read_text() for _, name in names] == [str(number) for number in range(count)]
        assert not list(root.glob("new*"))
    finally:
        if place == "memory":
            shutil.rmtree(root)
