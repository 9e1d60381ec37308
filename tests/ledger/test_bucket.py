"""Artifacts in a bucket: machines that share a database and a real S3 server, and no disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from ratchet.kernel import LedgerCorrupt, LedgerUnavailable, NotFound
from ratchet.ledger import Ledger, collect_artifacts
from ratchet.ledger.artifacts import INLINE_BYTES, Artifact
from ratchet.ledger.backup import backup_into
from ratchet.ledger.bucket import Bucket
from ratchet.ledger.check import check
from ratchet.ledger.restore import restore
from ratchet.ledger.tables import artifacts
from tests.ledger.conftest import MakeLedger
from tests.s3 import S3Server, troubled

Machine = Callable[..., Ledger]


@pytest.fixture
def address(s3: S3Server) -> str:
    return s3.new_bucket()


@pytest.fixture
def machine(make_ledger: MakeLedger, address: str, tmp_path: Path) -> Iterator[Machine]:
    """Makes a machine of its own: the same database, the same bucket or another way to it, an empty disk."""
    url = make_ledger("postgresql").url
    opened: list[Ledger] = []

    def make(bucket: str = address, patience_seconds: float = 20) -> Ledger:
        home = tmp_path / f"machine-{len(opened)}"
        opened.append(Ledger(url, home / "artifacts", Bucket(bucket, patience_seconds=patience_seconds)))
        return opened[-1]

    yield make
    for ledger in opened:
        ledger.close()


def large(text: str) -> bytes:
    return text.encode().ljust(INLINE_BYTES + 1)


def put(ledger: Ledger, content: bytes) -> Artifact:
    with ledger.write() as tx:
        return ledger.artifacts.put(tx, content, name="file")


def here(ledger: Ledger) -> set[str]:
    return {sha256 for sha256, _ in ledger.artifacts.stored()}


def in_bucket(ledger: Ledger) -> set[str]:
    return set(ledger.artifacts.hashes())


def errors(ledger: Ledger) -> list[str]:
    return [found.what for found in check(ledger).findings if found.severity == "error"]


def test_what_one_machine_puts_another_reads_by_database_and_bucket_alone(machine: Machine) -> None:
    first, second = machine(), machine()
    small, great, huge = put(first, b"small"), put(first, large("great")), put(first, os.urandom(6_000_000))
    assert in_bucket(first) == {great.sha256, huge.sha256}
    shutil.rmtree(first.artifacts.root)
    assert second.artifacts.read(small.sha256) == b"small"
    assert second.artifacts.read(great.sha256) == large("great")
    assert len(second.artifacts.read(huge.sha256)) == 6_000_000
    assert here(second) == {great.sha256, huge.sha256}
    with pytest.raises(NotFound):
        second.artifacts.read("0" * 64)


def test_what_is_there_is_not_sent_again_and_what_is_at_hand_is_not_asked_for(
    machine: Machine, address: str
) -> None:
    methods: list[str] = []

    def count(method: str, content: bytes) -> tuple[int, bytes]:
        methods.append(method)
        return 200, content

    with troubled(address, count) as counted:
        ledger = machine(counted)
        kept = put(ledger, large("once"))
        put(ledger, large("once"))
        assert ledger.artifacts.read(kept.sha256) == large("once")
    assert methods == ["PUT", "HEAD"]


def test_what_arrives_cut_short_is_asked_for_again(machine: Machine, address: str) -> None:
    kept = put(machine(), large("whole"))
    cuts = iter([1000, 0])

    def cut(method: str, content: bytes) -> tuple[int, bytes]:
        return 200, content[: next(cuts, len(content))] if method == "GET" else content

    with troubled(address, cut) as way:
        assert machine(way).artifacts.read(kept.sha256) == large("whole")


def test_what_is_damaged_in_the_bucket_is_never_read_as_data(machine: Machine, tmp_path: Path) -> None:
    kept = put(machine(), large("whole"))
    ledger = machine()
    assert ledger.artifacts.bucket is not None
    (tmp_path / "cut").write_bytes(large("whole")[:-1])
    ledger.artifacts.bucket.put(kept.sha256, tmp_path / "cut", kept.size - 1)
    with pytest.raises(LedgerCorrupt, match="does not match its hash"):
        ledger.artifacts.open(kept.sha256)
    assert here(ledger) == set()
    assert errors(ledger) == [f"artifact {kept.sha256} does not match its hash"]
    # Whoever has the content brings it back.
    put(ledger, large("whole"))
    assert errors(machine()) == []


def test_a_damaged_copy_of_this_machine_is_replaced(machine: Machine) -> None:
    ledger = machine()
    kept = put(ledger, large("the truth"))
    ledger.artifacts.path(kept.sha256).write_bytes(large("the trush"))
    assert ledger.artifacts.read(kept.sha256) == large("the truth")
    assert ledger.artifacts.path(kept.sha256).read_bytes() == large("the truth")


def _fails(_method: str, _content: bytes) -> tuple[int, bytes]:
    return 500, b"<Error><Code>InternalError</Code></Error>"


def _is_silent(_method: str, _content: bytes) -> tuple[int, bytes]:
    raise TimeoutError


@pytest.mark.parametrize("trouble", [_fails, pytest.param(_is_silent, marks=pytest.mark.soak)])
def test_nothing_is_recorded_that_a_broken_store_does_not_have(
    trouble: Callable[[str, bytes], tuple[int, bytes]], machine: Machine, address: str
) -> None:
    kept = put(machine(), large("before"))
    with troubled(address, trouble) as way:
        ledger = machine(way, patience_seconds=0.5)
        with pytest.raises(LedgerUnavailable, match="artifact store s3://"):
            put(ledger, large("lost"))
        with pytest.raises(LedgerUnavailable, match="artifact store s3://"):
            ledger.artifacts.read(kept.sha256)
    with machine().read() as tx:
        assert tx.connection.execute(sa.select(artifacts.c.sha256)).scalars().all() == [kept.sha256]


def test_a_store_that_fails_now_and_then_is_asked_again(machine: Machine, address: str) -> None:
    answers = iter([500, 503])

    def falter(_method: str, content: bytes) -> tuple[int, bytes]:
        return next(answers, 200), content

    with troubled(address, falter) as way:
        ledger = machine(way)
        assert ledger.artifacts.read(put(ledger, large("after all")).sha256) == large("after all")


def test_the_collector_deletes_what_no_row_names_and_empties_this_machine(machine: Machine) -> None:
    ledger, other = machine(), machine()
    kept = put(ledger, large("kept"))
    with ledger.artifacts.held():
        lost, _ = ledger.artifacts.keep(large("nobody's"))
    assert collect_artifacts(other, grace_seconds=3600).files == 0
    assert in_bucket(ledger) == {kept.sha256, lost}
    # Ages are counted from now, which the clock of the store may be behind by a second.
    collect_artifacts(ledger, grace_seconds=-60)
    assert (in_bucket(ledger), here(ledger)) == ({kept.sha256}, set())
    assert ledger.artifacts.read(kept.sha256) == large("kept")


def test_the_collector_leaves_what_a_transaction_is_about_to_name(machine: Machine) -> None:
    ledger, other = machine(), machine()
    with ledger.write() as tx:
        kept = ledger.artifacts.put(tx, large("soon"), name="file")
        assert collect_artifacts(other, grace_seconds=-60).files == 0
    assert other.artifacts.read(kept.sha256) == large("soon")


def test_a_check_names_what_the_bucket_has_lost(machine: Machine) -> None:
    ledger = machine()
    kept = put(ledger, large("kept"))
    assert errors(ledger) == []
    assert ledger.artifacts.bucket is not None
    ledger.artifacts.bucket.remove(kept.sha256)
    assert errors(ledger) == [f"artifact {kept.sha256} is missing"]


def test_a_backup_holds_what_is_only_in_the_bucket_and_is_restored_into_another(
    machine: Machine, s3: S3Server, tmp_path: Path
) -> None:
    kept = put(machine(), large("kept"))
    report = backup_into(machine(), tmp_path / "backups")
    assert (report.artifacts, report.left_out) == (1, ())
    moved = machine(s3.new_bucket())
    restore(moved, tmp_path / "backups", force=True)
    assert in_bucket(moved) == {kept.sha256}
    shutil.rmtree(moved.artifacts.root)
    assert moved.artifacts.read(kept.sha256) == large("kept")
