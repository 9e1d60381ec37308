"""Real Ray, in an environment of its own: a head and nodes as processes on loopback."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet import __version__
from ratchet.kernel import Missing
from ratchet.placement import (
    Brokered,
    Order,
    PlacedWork,
    WorkLost,
    carry_out,
    content_hash,
    pinned_to,
)
from tests.placement.test_placement import another_ratchet, has_begun, is_alive, nothing, read_pid, work
from tests.waiting import eventually_async

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has Ray, Ratchet and all that the tests have."""
    given = os.environ.get("RATCHET_TEST_RAY_PYTHON")
    if given:
        return given
    environment = tmp_path_factory.mktemp("ray") / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    program = str(environment / "bin" / "python")
    subprocess.run([program, "-m", "pip", "install", "-q", "ray>=2.50"], check=True)
    [site] = environment.glob("lib/python*/site-packages")
    own = sysconfig.get_path("purelib")
    (site / "ratchet-and-tests.pth").write_text(f"{ROOT / 'src'}\n{ROOT}\n{own}\n")
    return program


class RayCluster:
    def __init__(self, python: str, nodes: int, *, cpus: int = 2, path: Path | None = None) -> None:
        places = os.pathsep.join(map(str, [*([path] if path else []), ROOT]))
        self._process = subprocess.Popen(
            [python, "-m", "tests.placement.ray_cluster", str(nodes), str(cpus)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": places},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address = self._said()

    def do(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        assert self._said() == "done"

    def close(self) -> None:
        try:
            self._process.communicate("end\n", timeout=120)
        finally:
            self._process.kill()

    def _said(self) -> str:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith(("127.0.0.1:", "done")):
                return line.strip()
        raise AssertionError("the cluster ended")


@pytest.fixture
def ray_cluster(python: str, tmp_path: Path) -> Iterator[Callable[..., tuple[RayCluster, Brokered]]]:
    clusters: list[RayCluster] = []
    placements: list[Brokered] = []

    def make(nodes: int, **more: Any) -> tuple[RayCluster, Brokered]:
        clusters.append(RayCluster(python, nodes, **more))
        command = [python, "-P", "-m", "ratchet.placement.ray_tasks", clusters[-1].address]
        placements.append(Brokered(command, str(tmp_path / "cache")))
        return clusters[-1], placements[-1]

    yield make
    for placement in placements:
        placement.close()
    for cluster in clusters:
        cluster.close()


def test_work_is_done_by_ray_and_outlives_nodes_that_are_killed(
    ray_cluster: Callable[..., tuple[RayCluster, Brokered]], tmp_path: Path
) -> None:
    cluster, placement = ray_cluster(2)
    content = b"x" * 1_000_000
    sha256 = content_hash(content)
    heard: list[bytes] = []

    async def main() -> None:
        nodes = await placement.nodes()
        assert sorted(each.free.get("CPU", 0.0) for each in nodes) == [0.0, 2.0, 2.0]
        for each in nodes:
            asked: PlacedWork[dict[str, Any]] = PlacedWork(
                name="facts",
                here=nothing,
                there=lambda: Order("ratchet.placement:facts", None),
                needs=pinned_to(each),
            )
            assert (await carry_out(placement, asked))["ratchet"] == __version__
        assert await carry_out(placement, work("echo", {"a": 1})) == {"a": 1}
        order = Order("tests.placement.errands:count", 20)
        counted: PlacedWork[str] = PlacedWork(
            name="count", here=nothing, there=lambda: order, hear=heard.append
        )
        assert await carry_out(placement, counted) == "counted"
        assert heard == [str(number).encode() for number in range(20)]
        assert await carry_out(placement, work("read", sha256, contents={sha256: content})) == content
        assert await carry_out(placement, work("die", str(tmp_path / "tries"))) == "survived"
        # A process that is cancelled ends.
        waiting = asyncio.create_task(carry_out(placement, work("wait_in", str(tmp_path / "cancelled"))))
        await eventually_async(lambda: has_begun(tmp_path / "cancelled"))
        waiting.cancel()
        await asyncio.wait([waiting])
        await eventually_async(lambda: not is_alive(read_pid(tmp_path / "cancelled")))
        # Work on both nodes, of which one is killed: what it did begins again on the one that was added.
        names = [tmp_path / f"waiting-{place}" for place in range(4)]
        tasks = [asyncio.create_task(carry_out(placement, work("wait_for", str(each)))) for each in names]
        await eventually_async(lambda: all(map(has_begun, names)))
        await asyncio.to_thread(cluster.do, "add")
        await asyncio.to_thread(cluster.do, "kill 0")
        await eventually_async(lambda: sum(len(each.read_text().split()) for each in names) == 6)
        go(names)
        assert await asyncio.gather(*tasks) == ["went"] * 4

    asyncio.run(main())


def test_a_ray_node_that_freezes_is_given_up_and_what_it_says_when_it_thaws_counts_for_nothing(
    ray_cluster: Callable[..., tuple[RayCluster, Brokered]], tmp_path: Path
) -> None:
    cluster, placement = ray_cluster(1, cpus=1)
    name = tmp_path / "waiting"

    async def main() -> None:
        task = asyncio.create_task(carry_out(placement, work("wait_for", str(name))))
        await eventually_async(lambda: has_begun(name))
        await asyncio.to_thread(cluster.do, "freeze 0")
        await asyncio.to_thread(cluster.do, "add")
        await eventually_async(lambda: len(name.read_text().split()) == 2)
        await asyncio.to_thread(cluster.do, "thaw 0")
        go([name])
        assert await task == "went"
        assert await carry_out(placement, work("echo", "after")) == "after"

    asyncio.run(main())
    assert len(name.read_text().split()) == 2


def test_work_waits_for_the_head_of_ray_to_be_started_again(
    ray_cluster: Callable[..., tuple[RayCluster, Brokered]], tmp_path: Path
) -> None:
    cluster, placement = ray_cluster(1)
    name = tmp_path / "waiting"

    async def main() -> None:
        assert await carry_out(placement, work("echo", "before")) == "before"
        task = asyncio.create_task(carry_out(placement, work("wait_for", str(name))))
        await eventually_async(lambda: has_begun(name))
        await asyncio.to_thread(cluster.do, "restart")
        go([name])
        assert await task == "went"

    asyncio.run(main())


def go(names: list[Path]) -> None:
    for each in names:
        Path(f"{each}.go").touch()


def test_a_ray_node_with_another_ratchet_is_refused_by_name(
    ray_cluster: Callable[..., tuple[RayCluster, Brokered]], tmp_path: Path
) -> None:
    _, placement = ray_cluster(1, path=another_ratchet(tmp_path / "another"))
    with pytest.raises(Missing, match=r"node \w+ \(127\.0\.0\.1\) has Ratchet 9\.9\.9, not 0"):
        asyncio.run(carry_out(placement, work("echo")))


def test_where_no_ray_listens_it_is_said_at_once(python: str, tmp_path: Path) -> None:
    placement = Brokered([python, "-P", "-m", "ratchet.placement.ray_tasks", "127.0.0.1:1"], str(tmp_path))
    with pytest.raises(WorkLost, match=r"there is no Ray at 127\.0\.0\.1:1: Connection refused"):
        asyncio.run(carry_out(placement, work("echo"), most_lost=1))
    placement.close()
