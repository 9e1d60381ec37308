"""Backups in a directory: each is whole, stores only what is new, and one that was killed is not there."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.kernel import Conflict, LedgerCorrupt, LedgerTooNew, Misuse
from ratchet.ledger import EventFilter, Ledger
from ratchet.ledger import events as log
from ratchet.ledger.backup import backup, backup_into
from ratchet.ledger.backup_directory import BackupDirectory, entries
from ratchet.ledger.home import HomeFiles
from ratchet.ledger.restore import restore
from tests.ledger.conftest import MakeLedger
from tests.ledger.test_backup import contents, rows
from tests.ledger.test_home import add_trial, fill, found, home_of, tree

pytestmark = pytest.mark.postgresql_in_soak

NAMES = ("agents", "research", "secret.key", "ratchet.toml")


def blobs(place: Path) -> set[str]:
    return {each.parent.name + each.name for each in (place / "blobs").glob("??/*")}


def say(ledger: Ledger, count: int) -> None:
    with ledger.write() as tx:
        for number in range(count):
            tx.event("said", message=f"{number} " + "x" * 100)


@pytest.mark.parametrize("kinds", [("sqlite", "postgresql"), ("postgresql", "sqlite")], ids="-".join)
def test_each_of_two_backups_is_restored_whole_elsewhere(
    make_ledger: MakeLedger, tmp_path: Path, kinds: tuple[str, str]
) -> None:
    source, target = map(make_ledger, kinds)
    run, repository = fill(source)
    with source.write() as tx:
        for content in (b"small", b"large" * 100_000):
            source.artifacts.put(tx, content, name="out")
    (home_of(source) / "agents/greeter/elsewhere").unlink()
    for staging in home_of(source).glob("agents/greeter/*-staging"):
        staging.rmdir()
    backup_into(source, tmp_path / "b", keys=True)
    before = rows(source), contents(source), tree(home_of(source), *NAMES)
    add_trial(source, run, repository, 1)
    with source.write() as tx:
        source.artifacts.put(tx, b"second", name="out")
    taken = backup_into(source, tmp_path / "b", keys=True)
    assert (taken.artifacts, taken.files_left_out, taken.removed) == (3, (), ())
    for number, wanted in (
        (1, before),
        (None, (rows(source), contents(source), tree(home_of(source), *NAMES))),
    ):
        restore(target, tmp_path / "b", force=True, number=number)
        assert (
            rows(target),
            {k: contents(target)[k] for k in wanted[1]},
            tree(home_of(target), *NAMES),
        ) == wanted
        assert found(target) == [] or number == 1  # the artifact of later is a file without a row


def test_its_files_are_its_owners_alone_also_when_they_are_copied(ledger: Ledger, tmp_path: Path) -> None:
    backup_into(ledger, tmp_path / "b")
    kept = [*(tmp_path / "b").glob("blobs/*/*"), *(tmp_path / "b").glob("backups/*")]
    assert kept
    assert {each.stat().st_mode & 0o777 for each in kept} == {0o600}


def test_a_second_backup_stores_only_what_is_new(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    say(ledger, 3000)
    with ledger.write() as tx:
        ledger.artifacts.put(tx, b"large" * 100_000, name="out")
    first = backup_into(ledger, tmp_path / "b")
    before = blobs(tmp_path / "b")
    assert blobs_added(ledger, tmp_path / "b") == {"manifest.json"}
    say(ledger, 1)
    added = blobs_added(ledger, tmp_path / "b")
    assert {name.rpartition(".")[0] for name in added} == {"manifest", "contents", "tables/events"}
    assert len(added) == 3
    assert before < blobs(tmp_path / "b")
    assert first.bytes > 10 * backup_into(ledger, tmp_path / "b").bytes


def blobs_added(ledger: Ledger, place: Path) -> set[str]:
    """The members for which one more backup stores a blob."""
    before = blobs(place)
    index = backup_into(ledger, place).path
    return {entry.name for entry in entries(index) if entry.sha256 not in before}


@pytest.mark.soak
def test_files_that_have_not_changed_are_not_read_again(make_ledger: MakeLedger, tmp_path: Path) -> None:
    ledger = make_ledger("sqlite")
    fill(ledger)
    changed = next(home_of(ledger).glob("agents/greeter/*/runner.py"))
    time.sleep(2.1)  # a file that was written just now may be written again within the same tick of its clock
    backup_into(ledger, tmp_path / "b")
    changed.write_text("print('again')")
    with BackupDirectory(tmp_path / "b").writing() as out:
        files = HomeFiles(home_of(ledger), keys=True)
        files.read_refs()
        read = [
            file.path for file in files.files(lambda path, *found: bool(out.keep(f"files/{path}", *found)))
        ]
    refs = [path for path in read if "/refs/" in path or path.endswith(("HEAD", "packed-refs"))]
    assert set(read) - set(refs) == {str(changed.relative_to(home_of(ledger))), "secret.key"}


def test_events_that_the_backup_before_has_are_not_read_again(ledger: Ledger, tmp_path: Path) -> None:
    say(ledger, 3000)
    backup_into(ledger, tmp_path / "b")
    # So that it shows: no event is ever changed.
    with ledger.write() as tx:
        tx.connection.execute(sa.text("UPDATE events SET message = 'changed' WHERE id = 1"))
    say(ledger, 1)
    backup_into(ledger, tmp_path / "b")
    restore(ledger, tmp_path / "b", force=True)
    with ledger.read() as tx:
        said = log.since(tx.connection, where=EventFilter(type="said"), limit=10_000)
    assert [event.message.split()[0] for event in said] == [*map(str, range(3000)), "0"]


def test_a_backup_after_an_older_state_was_restored_is_of_that_state(ledger: Ledger, tmp_path: Path) -> None:
    say(ledger, 2000)
    backup(ledger, tmp_path / "old")
    say(ledger, 2000)
    backup_into(ledger, tmp_path / "b")
    restore(ledger, tmp_path / "old", force=True)
    say(ledger, 10)
    wanted = rows(ledger)
    backup_into(ledger, tmp_path / "b")
    restore(ledger, tmp_path / "b", force=True)
    assert rows(ledger) == wanted


def test_only_so_many_backups_are_kept_and_what_only_older_ones_had_goes(
    ledger: Ledger, tmp_path: Path
) -> None:
    run, repository = fill(ledger)
    removed = []
    for number in range(1, 4):
        add_trial(ledger, run, repository, number)
        (home_of(ledger) / "ratchet.toml").write_text(f"# {number}")
        removed += backup_into(ledger, tmp_path / "b", keep=2).removed
    assert [name.partition("-")[0] for name in removed] == ["000001"]
    indexes = BackupDirectory(tmp_path / "b").indexes()
    assert blobs(tmp_path / "b") == {entry.sha256 for index in indexes for entry in entries(index)}
    for number in (2, 3):
        restore(ledger, tmp_path / "b", force=True, number=number)
    with pytest.raises(Misuse, match="has no backup 1") as raised:
        restore(ledger, tmp_path / "b", force=True, number=1)
    assert "there are: 000002-" in str(raised.value.hint)


def test_a_damaged_blob_is_named_and_stored_again_once_it_is_gone(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    backup_into(ledger, tmp_path / "b")
    [index] = BackupDirectory(tmp_path / "b").indexes()
    entry = next(each for each in entries(index) if each.name.endswith("runner.py"))
    blob = BackupDirectory(tmp_path / "b").blob(entry.sha256)
    whole = blob.read_bytes()
    for damage in (whole[:-9], b"", gzip.compress(b"print('hellO')"), gzip.compress(b"\0" * 10_000_000)):
        blob.write_bytes(damage)
        with pytest.raises(
            LedgerCorrupt, match=f"{blob} is damaged, which 'files/agents/greeter/.*runner.py'"
        ):
            restore(ledger, tmp_path / "b", force=True)
    blob.unlink()
    with pytest.raises(LedgerCorrupt, match=f"{blob} is missing"):
        restore(ledger, tmp_path / "b", force=True)
    backup_into(ledger, tmp_path / "b")
    for number in (1, 2):
        restore(ledger, tmp_path / "b", force=True, number=number)


def test_a_damaged_index_is_not_usable_and_the_next_backup_is(ledger: Ledger, tmp_path: Path) -> None:
    fill(ledger)
    backup_into(ledger, tmp_path / "b")
    backup_into(ledger, tmp_path / "b")
    index = BackupDirectory(tmp_path / "b").index(2)
    index.write_bytes(index.read_bytes()[:-20])
    with pytest.raises(LedgerCorrupt, match="is not a usable backup"):
        restore(ledger, tmp_path / "b", force=True)
    with pytest.raises(LedgerCorrupt, match="no older backup was removed"):
        BackupDirectory(tmp_path / "b").keep(1)
    restore(ledger, tmp_path / "b", force=True, number=1)
    backup_into(ledger, tmp_path / "b")
    restore(ledger, tmp_path / "b", force=True)


def rename(old: str, new: str) -> Callable[[list[str]], list[str]]:
    return lambda lines: [line.replace(f'"files/{old}', f'"files/{new}') for line in lines]


@pytest.mark.parametrize(
    ("spoil", "error", "says"),
    [
        (rename("ratchet.toml", "../escaped"), LedgerCorrupt, "not a file of a home"),
        (rename("agents/", "elsewhere/"), LedgerCorrupt, "not a file of a home"),
        (lambda lines: lines[:-1], LedgerCorrupt, "contents.json should be"),
        (lambda lines: [*lines, lines[-1]], LedgerCorrupt, "one too many"),
        (lambda lines: [*lines[:3], "[", *lines[3:]], LedgerCorrupt, "is not JSON"),
        (lambda lines: [*lines[:3], '["x", 1, -1, "", ""]', *lines[3:]], LedgerCorrupt, "is not a member"),
        (lambda lines: lines[1:], LedgerCorrupt, "does not say what it is"),
        (lambda lines: [json.dumps({"format": 2}), *lines[1:]], LedgerTooNew, "has format 2"),
    ],
)
def test_a_hostile_index_is_refused_and_nothing_is_written(
    make_ledger: MakeLedger,
    tmp_path: Path,
    spoil: Callable[[list[str]], list[str]],
    error: type[Exception],
    says: str,
) -> None:
    source, target = make_ledger("sqlite"), make_ledger("sqlite")
    fill(source)
    index = backup_into(source, tmp_path / "b").path
    with gzip.open(index, "rt") as file:
        lines = file.read().splitlines()
    with gzip.open(index, "wt") as file:
        file.write("\n".join(spoil(lines)) + "\n")
    before = sorted(path.name for path in home_of(target).iterdir())
    with pytest.raises(error, match=says):
        restore(target, tmp_path / "b")
    assert sorted(path.name for path in home_of(target).iterdir()) == before


def test_a_place_that_is_no_directory_of_backups_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    with pytest.raises(Conflict, match="has other things in it: notes"):
        backup_into(ledger, tmp_path / "full")
    with pytest.raises(Misuse, match="is a file"):
        backup_into(ledger, tmp_path / "file")
    with pytest.raises(Misuse, match="holds no backup"):
        restore(ledger, tmp_path / "empty", force=True)
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["notes"]
    backup_into(ledger, tmp_path / "empty")
    with (
        BackupDirectory(tmp_path / "empty").reading(None),
        pytest.raises(Conflict, match="another process writes or reads"),
    ):
        backup_into(ledger, tmp_path / "empty")
