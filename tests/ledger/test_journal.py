"""The journal of files: what is in it, who writes it again, and when it goes."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.ledger.disk import File, Unsettled
from ratchet.ledger.journal import Journal
from ratchet.ledger.segment import SEGMENT_BYTES, Segment, record_of, recorded

SELDOM = 8


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    (tmp_path / "files").mkdir()
    return tmp_path


def journal_of(home: Path) -> Journal:
    return Journal(home / "store" / "journal")


def settle(
    journal: Journal, home: Path, contents: dict[str, bytes], *, changes: bool = False, prefix: str = "tmp"
) -> None:
    unsettled = Unsettled()
    for name, content in contents.items():
        path = home / "files" / name[:1] / name
        temporary = home / "files" / f"{prefix}-{name}"
        unsettled.add(File(str(path), str(temporary), content, 0o440, Path.mkdir, changes))
    journal.settle(unsettled)


def busy(home: Path) -> Journal:
    """A journal of which somebody has made use often enough to have records."""
    journal = journal_of(home)
    for number in range(SELDOM):
        settle(journal, home, {f"seldom{number}": b""})
    return journal


def read(home: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in (home / "files").glob("*/*") if path.name[:6] != "seldom"
    }


def places(home: Path) -> list[Path]:
    directory = home / "store" / "journal"
    return sorted(directory.iterdir()) if directory.exists() else []


def killed_after(act: Callable[[], object]) -> None:
    """What a process leaves that is killed after it has done this."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def killed(home: Path, contents: dict[str, bytes], *, changes: bool = False) -> None:
    """The same, of one that has settled this."""
    killed_after(lambda: settle(busy(home), home, contents, changes=changes))


def opening(home: Path) -> int:
    """A process that opens the store. It ends with 0 if that went well."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            journal_of(home).recover()
            code = 0
        finally:
            os._exit(code)
    return pid


def test_files_are_written_with_their_modes_and_the_journal_goes_when_it_is_closed(home: Path) -> None:
    journal = busy(home)
    settle(journal, home, {"a1": b"one", "b2": b""})
    assert read(home) == {"a1": b"one", "b2": b""}
    assert (home / "files" / "a" / "a1").stat().st_mode & 0o777 == 0o440
    assert len(places(home)) == 1
    journal.close()
    assert places(home) == []
    assert not list((home / "files").glob("tmp-*"))


def test_what_was_lost_or_damaged_is_written_again(home: Path) -> None:
    killed(home, {"a1": b"one", "a2": b"two", "b1": b"three", "c1": b"whole"})
    (home / "files" / "a" / "a1").unlink()
    damaged = home / "files" / "a" / "a2"
    damaged.chmod(0o600)
    damaged.write_bytes(b"\0\0\0")
    (home / "files" / "b" / "b1").unlink()
    (home / "files" / "b").rmdir()
    journal_of(home).recover()
    assert read(home) == {"a1": b"one", "a2": b"two", "b1": b"three", "c1": b"whole"}
    assert damaged.stat().st_mode & 0o777 == 0o440
    assert places(home) == []


def test_of_a_name_that_was_recorded_twice_the_last_content_is_written_again(home: Path) -> None:
    def content(number: int) -> bytes:
        return b"%d" % number + bytes(100_000)

    def settle_many() -> None:
        journal = busy(home)
        for number in range(SEGMENT_BYTES // 100_000 + 5):
            settle(journal, home, {"a1": content(number)})

    # So many that the last is in another segment than the first.
    killed_after(settle_many)
    (home / "files" / "a" / "a1").unlink()
    journal_of(home).recover()
    assert read(home) == {"a1": content(SEGMENT_BYTES // 100_000 + 4)}


def test_what_somebody_has_removed_altogether_stays_removed(home: Path) -> None:
    killed(home, {"a1": b"one"})
    for path in (home / "files").rglob("*"):
        if path.is_file():
            path.unlink()
    for path in (home / "files").iterdir():
        path.rmdir()
    (home / "files").rmdir()
    journal_of(home).recover()
    assert not (home / "files").exists()
    assert places(home) == []


def test_a_journal_in_use_is_left_alone(home: Path) -> None:
    journal = busy(home)
    settle(journal, home, {"a1": b"one"})
    (home / "files" / "a" / "a1").unlink()
    journal_of(home).recover()
    assert len(places(home)) == 1
    assert read(home) == {}
    settle(journal, home, {"a2": b"two"})
    assert read(home) == {"a2": b"two"}


@pytest.mark.parametrize("make", [journal_of, busy])
def test_what_somebody_has_moved_since_is_left_where_it_is(
    home: Path, make: Callable[[Path], Journal]
) -> None:
    living = make(home)
    killed(home, {"a1": b"commit of one that died"}, changes=True)
    settle(living, home, {"a1": b"commit of its successor"}, changes=True)
    journal_of(home).recover()
    assert read(home) == {"a1": b"commit of its successor"}


@pytest.mark.parametrize("left", [b"commit 0", b"", b"\0\0\0\0\0\0\0\0", None])
def test_what_a_power_cut_has_left_of_something_that_moves_is_mended(home: Path, left: bytes | None) -> None:
    place = home / "files" / "a" / "a1"
    killed_after(
        lambda: [
            settle(journal, home, {"a1": content}, changes=True)
            for journal in [busy(home)]
            for content in (b"commit 0", b"commit 1")
        ]
    )
    place.unlink()
    if left is not None:
        place.write_bytes(left)
        if left.startswith(b"commit"):
            os.utime(place, (1, 1))
    journal_of(home).recover()
    assert read(home) == {"a1": b"commit 1"}


def test_of_what_several_dead_have_recorded_the_last_is_written_again(home: Path) -> None:
    for number in range(5):
        killed(home, {"a1": b"commit %d" % number}, changes=True)
    (home / "files" / "a" / "a1").unlink()
    journal_of(home).recover()
    assert read(home) == {"a1": b"commit 4"}
    assert places(home) == []


def test_of_those_who_open_at_once_none_goes_on_before_all_is_written_again(home: Path) -> None:
    expected = {f"a{who}{number}": b"%d" % who * 100 for who in range(3) for number in range(20)}
    for who in range(3):
        killed(home, {name: content for name, content in expected.items() if name[1] == str(who)})
    for name in expected:
        (home / "files" / "a" / name).unlink()
    openings = [opening(home) for _ in range(4)]
    journal_of(home).recover()
    assert read(home) == expected
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in openings] == [0] * 4
    assert read(home) == expected


def test_content_that_looks_like_a_record_is_none(home: Path) -> None:
    forged = File(str(home / "files" / "a" / "forged"), str(home / "tmp"), b"not ours", 0o440, Path.mkdir)
    other = Segment(home / "other")
    other.append(record_of([forged], f"{home}/"), 2**63)
    assert [each.path for each in recorded(other.path)] == ["files/a/forged"]
    killed(home, {"a1": b"one"})
    [segment] = [each for each in places(home)[0].iterdir() if list(recorded(each))]
    # As what earlier files have left behind the last record of a segment that is used again.
    with segment.open("r+b") as file:
        file.seek(len(segment.read_bytes().rstrip(b"\0")))
        file.write(other.path.read_bytes()[:1000])
    (home / "files" / "a" / "a1").unlink()
    journal_of(home).recover()
    assert read(home) == {"a1": b"one"}


def test_a_disk_that_fails_once_leaves_the_records_to_whoever_recovers_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = busy(home)
    content = os.urandom(100_000)

    def fill(letter: str) -> dict[str, bytes]:
        made = {f"{letter}{number:03}": content for number in range(SEGMENT_BYTES // len(content) + 2)}
        for name, each in made.items():
            settle(journal, home, {name: each})
        return made

    real, failing = os.stat, [True]

    def stat(path: str, **more: object) -> os.stat_result:
        if failing[0] and str(path).startswith(str(home / "files")):
            raise OSError(24, "Too many open files")
        return real(path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", stat)
    expected = fill("a")
    failing[0] = False
    expected |= fill("b") | fill("c")
    assert read(home) == expected
    with pytest.raises(OSError, match="Too many"):
        journal.close()
    assert len(places(home)) == 1
    (home / "files" / "a" / "a000").unlink()
    journal_of(home).recover()
    assert read(home) == expected
    assert places(home) == []


def test_where_no_thread_can_be_had_segments_are_used_again_all_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    journal, content = busy(home), os.urandom(100_000)
    expected = {f"a{number:03}": content for number in range(3 * SEGMENT_BYTES // len(content))}
    for name in expected:
        settle(journal, home, {name: content})
    assert read(home) == expected
    journal.close()
    assert places(home) == []


def test_a_journal_for_which_there_is_no_room_leaves_nothing_behind(home: Path) -> None:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            journal = busy(home)
            before = len(list(Path("/proc/self/fd").iterdir()))
            resource.setrlimit(resource.RLIMIT_FSIZE, (SEGMENT_BYTES // 2, SEGMENT_BYTES // 2))
            settle(journal, home, {"a1": b"one"})
            code = 0 if len(list(Path("/proc/self/fd").iterdir())) == before else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert read(home) == {"a1": b"one"}
    assert places(home) == []


def test_a_name_that_could_not_be_given_can_be_given_later(home: Path) -> None:
    journal = busy(home)
    (home / "files" / "a").write_text("in the way")
    unsettled = Unsettled()
    file = File(str(home / "files" / "a" / "a1"), str(home / "files" / "tmp"), b"one", 0o440, Path.mkdir)
    for _ in range(2):
        unsettled.add(file)
        with pytest.raises(NotADirectoryError):
            journal.settle(unsettled)
    (home / "files" / "a").unlink()
    unsettled.add(file)
    journal.settle(unsettled)
    assert read(home) == {"a1": b"one"}


def test_a_stray_file_is_in_nobodys_way(home: Path) -> None:
    killed(home, {"a1": b"one"})
    (home / "store" / "journal" / "notes.txt").write_text("mine")
    (home / "files" / "a" / "a1").unlink()
    journal_of(home).recover()
    assert read(home) == {"a1": b"one"}
    assert [place.name for place in places(home)] == ["notes.txt"]


def test_a_torn_record_and_what_is_behind_it_count_for_nothing(home: Path) -> None:
    journal = busy(home)
    for number in range(3):
        settle(journal, home, {f"a{number}": b"content %d" % number})
    segment = next(path for path in places(home)[0].iterdir() if list(recorded(path)))
    content = bytearray(segment.read_bytes())
    content[content.index(b"content 1")] ^= 1
    segment.write_bytes(content)
    assert [each.content for each in recorded(segment)] == [b"content 0"]


def test_a_full_segment_is_used_again_and_tells_only_of_what_came_last(home: Path) -> None:
    journal = busy(home)
    content = os.urandom(100_000)
    many = 3 * SEGMENT_BYTES // len(content)
    for number in range(many):
        settle(journal, home, {f"{number % 10}-{number}": content + b"%d" % number})
    segments = sorted(places(home)[0].iterdir())
    assert [path.stat().st_size for path in segments] == [SEGMENT_BYTES] * 2
    told = [each.content[100_000:] for path in segments for each in recorded(path)]
    assert len(told) < many
    assert b"%d" % (many - 1) in told
    assert len(read(home)) == many


def test_directories_that_somebody_removes_are_in_nobodys_way(home: Path) -> None:
    journal = busy(home)
    content = os.urandom(100_000)
    for number in range(3 * SEGMENT_BYTES // len(content)):
        name = f"{number % 10}-{number}"
        settle(journal, home, {name: content})
        (home / "files" / name[:1] / name).unlink()
        (home / "files" / name[:1]).rmdir()
    journal.close()
    assert places(home) == []


def test_paths_are_told_relative_to_the_home_so_that_it_may_be_moved(home: Path, tmp_path: Path) -> None:
    killed(home, {"a1": b"one"})
    moved = tmp_path / "moved"
    moved.mkdir()
    (home / "store").rename(moved / "store")
    (home / "files").rename(moved / "files")
    (moved / "files" / "a" / "a1").unlink()
    journal_of(moved).recover()
    assert read(moved) == {"a1": b"one"}


def test_a_fork_keeps_a_journal_of_its_own(home: Path) -> None:
    journal = busy(home)
    settle(journal, home, {"a1": b"parent"})
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            settle(journal, home, {"a2": b"child"})
            code = 0 if len(places(home)) == 2 else 2
            journal.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    settle(journal, home, {"a3": b"parent"})
    assert read(home) == {"a1": b"parent", "a2": b"child", "a3": b"parent"}
    assert len(places(home)) == 1


def test_where_no_journal_can_be_had_every_file_is_waited_for(home: Path) -> None:
    (home / "store" / "journal").write_text("in the way")
    settle(busy(home), home, {"a1": b"one"})
    assert read(home) == {"a1": b"one"}
