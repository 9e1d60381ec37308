import contextlib
import hashlib
import io
import os
import random
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from ratchet.kernel import LedgerCorrupt, LedgerUnavailable, NotFound
from ratchet.ledger import Ledger, collect_artifacts
from ratchet.ledger import artifacts as store
from ratchet.ledger.check import check
from ratchet.ledger.runs import create_run, create_steps, get_step, open_attempt
from ratchet.ledger.tables import artifact_contents, artifacts
from tests.ledger.actors import acting, append_steadily, kill_after, place_of, put_same, put_steadily
from tests.ledger.conftest import MakeLedger


def large(text: str) -> bytes:
    return text.encode().ljust(store.INLINE_BYTES + 1)


def put(ledger: Ledger, content: bytes, **more: object) -> store.Artifact:
    with ledger.write() as tx:
        return ledger.artifacts.put(tx, content, name="file", **more)


def files(ledger: Ledger) -> dict[str, bytes]:
    return {sha256: path.read_bytes() for sha256, path in ledger.artifacts.stored()}


def age(ledger: Ledger, seconds: float = 7200) -> None:
    for _, path in ledger.artifacts.stored():
        os.utime(path, (time.time() - seconds,) * 2)


def named(ledger: Ledger) -> set[str]:
    with ledger.read() as tx:
        return set(tx.connection.execute(sa.select(artifacts.c.sha256)).scalars())


def test_equal_contents_share_one_file_and_keep_their_own_rows(ledger: Ledger) -> None:
    for content, expected in ((b"same", {}), (large("same"), {first_hash(large("same")): large("same")})):
        first, second = put(ledger, content), put(ledger, content)
        assert first.sha256 == second.sha256 == first_hash(content)
        assert first.id != second.id
        assert files(ledger) == expected
        assert ledger.artifacts.read(first.sha256) == content


def first_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_stream_is_kept_without_being_read_at_once(ledger: Ledger) -> None:
    content = os.urandom(3_000_000)
    stored = put(ledger, io.BytesIO(content))
    assert (stored.size, ledger.artifacts.read(stored.sha256)) == (3_000_000, content)


def test_artifacts_are_listed_by_attempt_and_by_run(ledger: Ledger) -> None:
    with ledger.write() as tx:
        run = create_run(tx, "demo", "one")
        [step] = create_steps(tx, run, [("a", {})])
        attempt = open_attempt(tx, get_step(tx, step))
        ledger.artifacts.put(tx, b"1", name="of the attempt", run_id=run, attempt_id=attempt)
        ledger.artifacts.put(tx, b"2", name="of the run", run_id=run)
    with ledger.read() as tx:
        assert [each.name for each in store.of_attempt(tx, attempt)] == ["of the attempt"]
        assert [each.name for each in store.of_run(tx, run)] == ["of the attempt", "of the run"]


def test_a_rolled_back_put_leaves_at_most_a_large_file_that_only_the_collector_takes(ledger: Ledger) -> None:
    nothing = large("for nothing")
    with contextlib.suppress(RuntimeError), ledger.write() as tx:
        ledger.artifacts.put(tx, b"for nothing", name="x")
        ledger.artifacts.put(tx, nothing, name="y")
        raise RuntimeError
    assert named(ledger) == set()
    assert collect_artifacts(ledger, grace_seconds=3600).files == 0
    age(ledger)
    collected = collect_artifacts(ledger, grace_seconds=3600)
    assert (collected.files, collected.bytes, files(ledger)) == (1, len(nothing), {})


def test_damaged_content_is_not_handed_out(ledger: Ledger) -> None:
    small, in_file = put(ledger, b"the truth"), put(ledger, large("the truth"))
    with ledger.write() as tx:
        tx.connection.execute(sa.update(artifact_contents).values(content=b"the trush"))
    ledger.artifacts.path(in_file.sha256).write_bytes(large("the trush"))
    for stored in (small, in_file):
        with pytest.raises(
            LedgerCorrupt, match=f"artifact {stored.sha256} does not match its hash"
        ) as raised:
            ledger.artifacts.read(stored.sha256)
        assert "ratchet ledger restore" in str(raised.value.hint)
    assert [each.what for each in check(ledger).findings] == [
        f"artifact {stored.sha256} does not match its hash" for stored in (small, in_file)
    ]


def test_a_file_that_lost_its_end_is_mended_when_the_content_comes_again(ledger: Ledger) -> None:
    stored = put(ledger, large("the whole truth"))
    ledger.artifacts.path(stored.sha256).write_bytes(b"the whole")
    put(ledger, large("the whole truth"))
    assert ledger.artifacts.read(stored.sha256) == large("the whole truth")


@pytest.mark.parametrize(
    "sha256", ["", "ab", "../../etc/passwd", "A" * 64, "g" * 64, "0" * 63 + "/", "0" * 64]
)
def test_what_is_no_hash_of_ours_is_not_found(ledger: Ledger, sha256: str) -> None:
    with pytest.raises(NotFound):
        ledger.artifacts.read(sha256)


@pytest.mark.parametrize("content", [str.encode, large])
def test_expiry_takes_what_is_old_and_never_what_is_pinned(
    ledger: Ledger, content: Callable[[str], bytes]
) -> None:
    old, shared = put(ledger, content("old")), put(ledger, content("shared"))
    pinned = put(ledger, content("pinned"), pinned=True)
    with ledger.write() as tx:
        tx.connection.execute(sa.update(artifacts).values(created_at=1000))
    young, again = put(ledger, content("young")), put(ledger, content("shared"))
    age(ledger)
    collected = collect_artifacts(ledger, grace_seconds=3600, expire_before=2000)
    assert (collected.rows, collected.files) == (2, int(content is large))
    kept = {pinned.sha256, young.sha256, again.sha256}
    assert set(files(ledger)) == (kept if content is large else set())
    assert {ledger.artifacts.read(each) for each in kept} == set(map(content, ("pinned", "young", "shared")))
    assert again.sha256 == shared.sha256
    with pytest.raises(NotFound):
        ledger.artifacts.read(old.sha256)


def test_without_an_expiry_no_row_is_forgotten(ledger: Ledger) -> None:
    stored = put(ledger, b"kept")
    age(ledger)
    assert collect_artifacts(ledger, grace_seconds=0).files == 0
    assert ledger.artifacts.read(stored.sha256) == b"kept"


def test_a_store_that_cannot_be_written_says_so(make_ledger: MakeLedger) -> None:
    ledger = make_ledger("sqlite")
    ledger.artifacts.root.parent.joinpath("artifacts").write_text("a file is in the way")
    with pytest.raises(LedgerUnavailable, match="artifact store"):
        put(ledger, large("x"))
    assert named(ledger) == set()


@pytest.mark.soak
def test_a_writer_killed_at_any_moment_leaves_whole_files_and_rows_only_for_them(ledger: Ledger) -> None:
    chance = random.Random(4)
    for round_ in range(60):
        with acting(put_steadily, *place_of(ledger), round_) as (process, pipe):
            pipe.recv()
            kill_after(process, chance.uniform(0.01, 0.12))
        # On a busy machine a writer may be dead before it has put anything.
        if round_ >= 7 and len(named(ledger)) > 5:
            break
    assert all(hashlib.sha256(content).hexdigest() == sha256 for sha256, content in files(ledger).items())
    # Reading checks their hashes.
    sizes = [len(ledger.artifacts.read(sha256)) for sha256 in named(ledger)]
    assert len(sizes) > 5
    age(ledger)
    collect_artifacts(ledger, grace_seconds=0)
    assert len(files(ledger)) == len([size for size in sizes if size > store.INLINE_BYTES])
    assert list((ledger.artifacts.root / "incoming").iterdir()) == []


@pytest.mark.soak
def test_collecting_while_others_put_the_same_contents_loses_none(ledger: Ledger) -> None:
    contents = [large(f"content {number}") for number in range(60)]
    with (
        acting(put_same, *place_of(ledger), contents, 180) as (_, one),
        acting(put_same, *place_of(ledger), contents, 180) as (_, two),
    ):
        busy = [one, two]
        while busy:
            # Rows go at once, files when they are older than a transaction takes, and come again after that.
            collect_artifacts(ledger, grace_seconds=2.0, expire_before=2**50)
            busy = [pipe for pipe in busy if not (pipe.poll() and pipe.recv() == "done")]
    collect_artifacts(ledger, grace_seconds=0)
    assert {ledger.artifacts.read(sha256) for sha256 in named(ledger)} == set(contents)


def test_every_row_that_others_can_see_has_its_file(ledger: Ledger) -> None:
    with acting(append_steadily, *place_of(ledger)) as (_, pipe):
        pipe.recv()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            for sha256 in named(ledger):
                ledger.artifacts.read(sha256)
    assert named(ledger)
