"""Restores and backups that are killed: what they leave is whole, or says that it is not and how to finish."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from ratchet.doctor.home import ledger as doctor_ledger
from ratchet.kernel import Conflict, LedgerCorrupt
from ratchet.ledger import Ledger
from ratchet.ledger.backup import backup, backup_into
from ratchet.ledger.backup_directory import BackupDirectory
from ratchet.ledger.restore import restore
from ratchet.ledger.runs import create_run
from tests.ledger.actors import acting, heard, keep_backup, place_of, restore_home
from tests.ledger.conftest import MakeLedger
from tests.ledger.test_backup import rows
from tests.ledger.test_home import fill, found, home_of, tree
from tests.runtime.worker_process import load

# Between two of these nothing happens to a file; rows are committed between two renames.
RENAMES = ("os.rename",)
EVERY_CALL = (
    "open",
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.symlink",
    "shutil.rmtree",
    "os.utime",
)
# Every fourth call, beginning with each of the first four: no case takes long on a busy machine.
SHARES = 4
NAMES = ("agents", "research", "projects", "secret.key", "ratchet.toml")


def world(ledger: Ledger) -> tuple[object, object]:
    return rows(ledger), tree(home_of(ledger), *NAMES)


def prepared(make_ledger: MakeLedger, ledger: Ledger, tmp_path: Path) -> tuple[Path, Path]:
    """A backup of a home with something in it, and one of `ledger`, which has something else."""
    source = make_ledger("sqlite")
    fill(source)
    with source.write() as tx:
        source.artifacts.put(tx, os.urandom(100_000), name="large")
    backup(source, tmp_path / "new", home=True, keys=True)
    with ledger.write() as tx:
        create_run(tx, "demo", "of the old world")
    home = home_of(ledger)
    for name in ("agents", "research"):
        (home / name).mkdir()
        (home / name / "old").write_text("of the old world")
    (home / "secret.key").write_text("old")
    backup(ledger, tmp_path / "old", home=True, keys=True)
    return tmp_path / "old", tmp_path / "new"


def refused(ledger: Ledger) -> LedgerCorrupt | None:
    try:
        Ledger.open(*place_of(ledger)).close()
    except LedgerCorrupt as error:
        return error
    return None


def kill_at_each(
    ledger: Ledger, old: Path, new: Path, events: tuple[str, ...], *, first: int = 1, step: int = 1
) -> tuple[int, int]:
    """How often a home was half restored, and how often it was whole, killed at each `step`th call."""
    restore(ledger, new, force=True)
    wanted = world(ledger)
    restore(ledger, old, force=True)
    before = world(ledger)
    half = whole = 0
    for number in range(first, 10_000, step):
        with acting(restore_home, *place_of(ledger), new, events, number) as (_, pipe):
            if heard(pipe, "done"):
                return half, whole
        refusal = refused(ledger)
        if refusal is None:
            assert world(ledger) in (before, wanted)
            whole += 1
        else:
            assert "is half restored" in str(refusal)
            assert f"ratchet restore {new} --force" in str(refusal.hint)
            half += 1
        restore(ledger, new, force=True)
        assert world(ledger) == wanted
        assert not [*home_of(ledger).glob("restore-*"), *home_of(ledger).glob("half-restored*")]
        assert refused(ledger) is None
        restore(ledger, old, force=True)
    raise AssertionError("it never came to its end")


def test_a_restore_killed_before_any_rename_leaves_a_whole_home_or_one_that_says_how_to_finish(
    make_ledger: MakeLedger, tmp_path: Path
) -> None:
    ledger = make_ledger("sqlite")
    half, whole = kill_at_each(ledger, *prepared(make_ledger, ledger, tmp_path), RENAMES)
    # The mark, the large artifact, and two for each of three names; only before the first nothing is marked.
    assert (half, whole) == (7, 1)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1, SHARES + 1))
def test_a_restore_killed_at_any_call_leaves_a_whole_home_or_one_that_says_how_to_finish(
    make_ledger: MakeLedger, ledger: Ledger, tmp_path: Path, first: int
) -> None:
    worlds = prepared(make_ledger, ledger, tmp_path)
    half, whole = kill_at_each(ledger, *worlds, EVERY_CALL, first=first, step=SHARES)
    assert half > 20 // SHARES
    assert whole > 20 // SHARES


def test_an_empty_home_says_that_it_is_half_restored_from_the_beginning(
    make_ledger: MakeLedger, tmp_path: Path
) -> None:
    target = make_ledger("sqlite")
    _, new = prepared(make_ledger, make_ledger("sqlite"), tmp_path)
    with acting(restore_home, *place_of(target), new, ("tempfile.mkdtemp",), 1) as (_, pipe):
        assert not heard(pipe, "done")
    with pytest.raises(LedgerCorrupt, match="is half restored"):
        Ledger.open(*place_of(target))
    [check] = doctor_ledger(load(home_of(target), target.url))
    assert (check.status, "ratchet restore" in str(check.fix)) == ("fail", True)
    restore(target, new, force=True)
    assert found(target) == []


def test_a_restore_that_is_refused_leaves_no_mark_unless_there_was_one(
    make_ledger: MakeLedger, tmp_path: Path
) -> None:
    target = make_ledger("sqlite")
    _, new = prepared(make_ledger, make_ledger("sqlite"), tmp_path)
    (tmp_path / "bad").write_bytes(new.read_bytes()[:-10])
    with pytest.raises(LedgerCorrupt, match="is not a usable backup"):
        restore(target, tmp_path / "bad")
    Ledger.open(*place_of(target)).close()
    (home_of(target) / "half-restored").write_text("ratchet restore it --force")
    with pytest.raises(LedgerCorrupt, match="is not a usable backup"):
        restore(target, tmp_path / "bad", force=True)
    with pytest.raises(LedgerCorrupt, match="is half restored"):
        Ledger.open(*place_of(target))


def test_two_restores_into_one_home_do_not_mix(make_ledger: MakeLedger, tmp_path: Path) -> None:
    target = make_ledger("sqlite")
    _, new = prepared(make_ledger, make_ledger("sqlite"), tmp_path)
    lock = os.open(home_of(target), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(Conflict, match="another restore into"):
        restore(target, new)
    (home_of(target) / "half-restored").write_text("ratchet restore it --force")
    with pytest.raises(Conflict, match="is being restored: `ratchet restore it --force`"):
        Ledger.open(*place_of(target))
    os.close(lock)
    restore(target, new)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1, SHARES + 1))
@pytest.mark.parametrize("events", [(*RENAMES, "os.remove"), EVERY_CALL], ids=["names", "all"])
def test_a_backup_killed_at_any_call_is_not_there_and_the_one_before_is_restored(
    make_ledger: MakeLedger, tmp_path: Path, events: tuple[str, ...], first: int
) -> None:
    ledger, target, place = make_ledger("sqlite"), make_ledger("sqlite"), tmp_path / "b"
    fill(ledger)
    backup_into(ledger, place)
    killed = 0
    for number in range(first, 10_000, SHARES):
        before = rows(ledger)
        with ledger.write() as tx:
            create_run(tx, "demo", "later")
            ledger.artifacts.put(tx, os.urandom(100_000), name="large")
        with acting(keep_backup, *place_of(ledger), place, events, number) as (_, pipe):
            done = heard(pipe, "done")
        restore(target, place, force=True)
        assert rows(target)["runs"] in (
            [rows(ledger)["runs"]] if done else [rows(ledger)["runs"], before["runs"]]
        )
        assert found(target)[1:] == []  # artifacts of others that were restored before
        if done:
            break
        killed += 1
        backup_into(ledger, place)
    assert killed > 10 // SHARES
    assert len(BackupDirectory(place).indexes()) == 1
