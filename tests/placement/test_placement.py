"""PlacedWork is done once wherever it is placed, and what becomes of a node is not what becomes of the work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import ratchet
from ratchet.kernel import Missing
from ratchet.placement import (
    LOCAL,
    Brokered,
    NodeContext,
    NodeUnfit,
    Order,
    PlacedWork,
    Placement,
    WorkDone,
    WorkFailed,
    WorkLost,
    WorkNews,
    carry_out,
    content_hash,
    packed_directory,
)
from tests.ledger.disks import SMALL, on_disk
from tests.waiting import eventually, eventually_async

T = TypeVar("T")
MakeCluster = Callable[..., Brokered]


async def nothing() -> Any:
    raise AssertionError("it was to be done elsewhere")


def work(function: str, given: Any = None, **more: Any) -> PlacedWork[Any]:
    order = Order(f"tests.placement.errands:{function}", given, **more)
    return PlacedWork(name=function, here=nothing, there=lambda: order)


def carried_out(placement: Placement, wanted: PlacedWork[T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(240):
            return await carry_out(placement, wanted)

    return asyncio.run(bounded())


def has_begun(file: Path) -> bool:
    """Whether what leaves the number of its process in a file has done so."""
    return file.exists() and file.read_text().endswith("\n")


def read_pid(file: Path) -> int:
    return int(file.read_text().split()[0])


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("Z", "")


def state_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def test_local_work_is_done_by_who_asks_for_it() -> None:
    async def here() -> int:
        return os.getpid()

    asked: list[str] = []

    def there() -> Order:
        asked.append("order")
        raise AssertionError

    assert carried_out(LOCAL, PlacedWork(name="here", here=here, there=there)) == os.getpid()
    assert asked == []


def test_local_work_that_is_cancelled_stops() -> None:
    ended: list[str] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def here() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("ended")

        task = asyncio.create_task(
            carry_out(LOCAL, PlacedWork(name="long", here=here, there=lambda: Order("", None)))
        )
        await begun.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["ended"]


def test_work_is_done_on_a_node_that_learns_contents_by_their_hashes(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    placement = cluster(1)
    content = b"x" * 100_000
    sha256 = content_hash(content)
    kept = tmp_path / "cache" / "contents" / sha256
    assert carried_out(placement, work("echo", {"a": (1, None)})) == {"a": (1, None)}
    assert carried_out(placement, work("process")) != os.getpid()
    for _ in range(2):
        assert carried_out(placement, work("read", sha256, contents={sha256: content})) == content
        assert kept.read_bytes() == content
        kept.write_bytes(content[:-1])
    assert carried_out(placement, work("read", sha256, contents={sha256: content})) == content


def test_content_that_is_not_what_its_hash_says_is_not_used(cluster: MakeCluster) -> None:
    wrong = content_hash(b"right")
    with pytest.raises(WorkLost, match="got other content"):
        asyncio.run(carry_out(cluster(1), work("read", wrong, contents={wrong: b"truncat"}), most_lost=1))


def test_news_arrive_in_order_and_before_the_end(cluster: MakeCluster) -> None:
    heard: list[bytes] = []
    order = Order("tests.placement.errands:count", 20)
    counted = PlacedWork(name="count", here=nothing, there=lambda: order, hear=heard.append)
    assert carried_out(cluster(1), counted) == "counted"
    assert heard == [str(number).encode() for number in range(20)]


def test_what_fails_on_a_node_fails_with_its_reason_and_is_not_tried_again(cluster: MakeCluster) -> None:
    with pytest.raises(WorkFailed, match="refuse: it is not possible") as failed:
        carried_out(cluster(1), work("refuse"))
    assert failed.value.hint == "try another way"


def test_work_of_a_node_that_was_killed_is_done_once_more(cluster: MakeCluster, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    assert carried_out(cluster(2), work("die", str(tries))) == "survived"
    assert len(set(tries.read_text().split())) == 2


def go(name: Path) -> None:
    Path(f"{name}.go").touch()


def test_a_node_that_was_frozen_and_thawed_does_its_work_once(cluster: MakeCluster, tmp_path: Path) -> None:
    placement, name = cluster(1), tmp_path / "pid"

    async def main() -> str:
        task = asyncio.create_task(carry_out(placement, work("wait_for", str(name))))
        await eventually_async(lambda: has_begun(name))
        os.kill(read_pid(name), signal.SIGSTOP)
        go(name)
        await eventually_async(lambda: state_of(read_pid(name)) == "T")
        os.kill(read_pid(name), signal.SIGCONT)
        return await task

    assert asyncio.run(main()) == "went"
    assert len(name.read_text().split()) == 1


@pytest.mark.soak
def test_what_a_node_did_that_stays_frozen_is_done_by_another(cluster: MakeCluster, tmp_path: Path) -> None:
    placement, name = cluster(2), tmp_path / "pid"

    async def main() -> str:
        task = asyncio.create_task(carry_out(placement, work("wait_for", str(name))))
        await eventually_async(lambda: has_begun(name))
        os.kill(read_pid(name), signal.SIGSTOP)
        # It would be heard of again, were it thawed now; it is not let do anything any more.
        await eventually_async(lambda: len(name.read_text().split()) == 2)
        eventually(lambda: not is_alive(read_pid(name)))
        go(name)
        return await task

    assert asyncio.run(main()) == "went"
    assert len(set(name.read_text().split())) == 2


def test_a_full_disk_of_a_node_is_named(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    refused, whole = on_disk(SMALL, tmp_path / "disk", fill_node, size="256k")
    assert refused.startswith("n1 has no room in")
    # What can be used without being kept is used.
    assert whole


def fill_node(disk: Path) -> tuple[str, bool]:
    with tempfile.TemporaryDirectory() as place:
        content = packed(Path(place), {"large.bin": b"x" * 1_000_000})
    node = NodeContext("n1", disk, lambda _: content, lambda _: None)
    try:
        node.directory(content_hash(content))
    except NodeUnfit as unfit:
        return str(unfit), node.read(content_hash(content)) == content
    return "there was room", False


def packed(place: Path, files: dict[str, bytes]) -> bytes:
    folder = place / "folder"
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return packed_directory(folder)


def test_a_directory_is_on_a_node_what_it_is_here(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    packed(tmp_path, {"a/b.txt": b"b", "run.sh": b"#!/bin/sh"})
    (folder / "run.sh").chmod(0o700)
    (folder / "empty").mkdir()
    (folder / "a" / "link").symlink_to("../run.sh")
    (folder / "away").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    content = packed_directory(folder)
    (folder / "a" / "b.txt").touch()
    assert packed_directory(folder) == content
    node = NodeContext("n1", tmp_path / "cache", lambda _: content, lambda _: None)
    for _ in range(2):
        found = node.directory(content_hash(content))
    names = {str(each.relative_to(found)) for each in found.rglob("*")}
    assert names == {"a", "a/b.txt", "a/link", "run.sh", "empty", "away"}
    assert ((found / "a" / "link").readlink(), (found / "away").readlink()) == (
        Path("../run.sh"),
        Path("/etc"),
    )
    assert os.access(found / "run.sh", os.X_OK)


def test_work_that_is_cancelled_while_it_is_sent_does_not_run_on(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    placement, name = cluster(1), tmp_path / "pid"
    sending, go = threading.Event(), threading.Event()

    def there() -> Order:
        sending.set()
        assert go.wait(60)
        return Order("tests.placement.errands:wait_in", str(name))

    async def main() -> None:
        task = asyncio.create_task(placement.place(PlacedWork(name="late", here=nothing, there=there)))
        await eventually_async(sending.is_set)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        go.set()
        # It waits for the only node, which does nothing else then.
        assert await carry_out(placement, work("echo", "free")) == "free"

    asyncio.run(main())


def test_work_that_kills_every_node_is_lost_in_the_end(cluster: MakeCluster) -> None:
    with pytest.raises(WorkLost, match="always_die was lost: process-2 died"):
        asyncio.run(carry_out(cluster(1), work("always_die"), most_lost=2))


def test_cancelled_work_ends_on_its_node(cluster: MakeCluster, tmp_path: Path) -> None:
    placement, name = cluster(1), tmp_path / "pid"

    async def main() -> None:
        task = asyncio.create_task(carry_out(placement, work("wait_in", str(name))))
        await eventually_async(lambda: has_begun(name))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
    eventually(lambda: not is_alive(read_pid(name)))
    assert carried_out(placement, work("echo", "still there")) == "still there"


def test_an_attempt_that_was_given_up_is_not_heard_of_any_more(cluster: MakeCluster, tmp_path: Path) -> None:
    placement, name = cluster(2), tmp_path / "pid"

    async def main() -> list[WorkNews | WorkDone[Any]]:
        first = await placement.place(work("wait_in", str(name)))
        await eventually_async(lambda: has_begun(name))
        second = await placement.place(work("echo", 2))
        await placement.cancel(first)
        assert first.number != second.number
        heard = [each async for each in placement.watch(second)]
        await placement.cancel(second)
        with pytest.raises(KeyError):
            await anext(aiter(placement.watch(first)))
        return heard

    assert asyncio.run(main()) == [WorkDone(2)]


def test_a_node_that_is_unfit_is_refused_and_another_one_asked(cluster: MakeCluster, tmp_path: Path) -> None:
    placement, name = cluster(2), str(tmp_path / "first")
    fit = carried_out(placement, work("unfit_on", name, kind="data"))
    assert fit != read_pid(Path(name))
    # It was told once, and is not asked again.
    assert {carried_out(placement, work("unfit_on", name, kind="data")) for _ in range(3)} == {fit}
    with pytest.raises(Missing, match="no node of the cluster can do unfit: it has no such data"):
        carried_out(placement, work("unfit", kind="other data"))


def test_a_node_with_another_ratchet_is_refused_by_name(cluster: MakeCluster, tmp_path: Path) -> None:
    placement = cluster(1, path=another_ratchet(tmp_path / "another"))
    with pytest.raises(Missing, match=r"node process-1 has Ratchet 9\.9\.9, not 0"):
        carried_out(placement, work("echo"))


def another_ratchet(directory: Path) -> Path:
    """A directory for PYTHONPATH with this Ratchet as version 9.9.9."""
    package = directory / "ratchet"
    package.mkdir(parents=True)
    own = Path(ratchet.__file__)
    for each in own.parent.iterdir():
        (package / each.name).symlink_to(each)
    (package / own.name).unlink()
    (package / own.name).write_text(own.read_text().replace(ratchet.__version__, "9.9.9"))
    return directory


def test_when_the_broker_is_killed_its_work_is_placed_again_by_the_next(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    placement, name = cluster(1), tmp_path / "pid"

    async def main() -> None:
        waiting = await placement.place(work("wait_in", str(name)))
        await eventually_async(lambda: has_begun(name))
        os.kill(parent_of(read_pid(name)), signal.SIGKILL)
        with pytest.raises(WorkLost, match="the connection to the cluster ended"):
            await anext(aiter(placement.watch(waiting)))
        await placement.cancel(waiting)

    asyncio.run(main())
    eventually(lambda: not is_alive(read_pid(name)))
    assert carried_out(placement, work("echo", "again")) == "again"
