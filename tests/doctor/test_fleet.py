"""The fleet is asked: what every process says is compared, and each finding names the host, the pid and the fix."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ratchet import __version__
from ratchet.config import Loaded, load_settings
from ratchet.doctor import ProbeCheck
from ratchet.doctor.fleet import fleet
from ratchet.ledger import Ledger
from ratchet.ledger.tables import processes
from ratchet.placement import nodes_in_use
from ratchet.runtime import Kinds, open_ledger, open_runtime
from ratchet.runtime.heartbeat import Heartbeat
from ratchet.runtime.processes import ProcessFacts, register
from tests.postgres import PostgresServer
from tests.runtime.conftest import url  # noqa: F401
from tests.s3 import S3Server

FAR = ProcessFacts(answered=1, python="3.11.2", home="/far/home", clock_ms=0.0, ledger_ms=1.0)


@pytest.fixture
def loaded(tmp_path: Path, url: str) -> Loaded:  # noqa: F811
    return load_settings(
        {"home": str(tmp_path / "home"), "database_url": url, "runtime.heartbeat_seconds": 0.05}, env={}
    )


@pytest.fixture
def ledger(loaded: Loaded) -> Iterator[Ledger]:
    with open_ledger(loaded) as opened:
        yield opened


@pytest.fixture
def here(loaded: Loaded, ledger: Ledger) -> Iterator[Heartbeat]:
    """A worker of this machine that beats."""
    heart = Heartbeat(
        open_runtime(loaded, ledger, Kinds()), "worker", 2, running=lambda: (), lost=lambda: None
    )
    heart.start()
    yield heart
    heart.stop()


@pytest.fixture
def far(ledger: Ledger) -> Callable[..., None]:
    """Enters a process of another machine that has answered already."""

    def enter(facts: ProcessFacts, version: str = __version__) -> None:
        with ledger.write() as tx:
            register(tx, "far-1", "worker", 4, facts)
            row = {"host": "far.example", "pid": 4711, "identity": "other/pid:[1]/1-1", "version": version}
            tx.connection.execute(sa.update(processes).where(processes.c.id == "far-1").values(row))

    return enter


def of(found: list[ProbeCheck], name: str) -> list[ProbeCheck]:
    return [each for each in found if each.name == f"fleet {name}"]


def bad(found: list[ProbeCheck], name: str) -> ProbeCheck:
    [check] = [each for each in of(found, name) if each.status != "ok"]
    return check


def test_a_fleet_of_which_all_is_well(loaded: Loaded, here: Heartbeat) -> None:
    found = fleet(loaded)
    assert {each.status for each in found} == {"ok"}, found
    assert of(found, "processes")[0].detail.startswith("1 answered, with 2 slots, on ")
    assert of(found, "store")[0].detail == "all share one home"
    assert list(loaded.home.glob("fleet-mark-*")) == []


def test_nobody_there_is_said(loaded: Loaded, ledger: Ledger) -> None:
    [found] = fleet(loaded)
    assert (found.status, found.detail) == ("warn", "no process works on this ledger")


def test_another_version_names_where_it_runs(
    loaded: Loaded, here: Heartbeat, far: Callable[..., None]
) -> None:
    far(replace(FAR, answered=99), version="0.0.9")
    check = bad(fleet(loaded), "versions")
    assert check.status == "fail"
    assert "worker 4711 on far.example runs Ratchet 0.0.9" in check.detail
    assert "on far.example: `kill 4711`" in (check.fix or "")


@pytest.mark.parametrize(("ahead", "status"), [(-4_000.0, "warn"), (90_000.0, "fail")])
def test_a_clock_that_is_apart_names_its_host(
    loaded: Loaded, here: Heartbeat, far: Callable[..., None], ahead: float, status: str
) -> None:
    far(replace(FAR, answered=99, clock_ms=ahead))
    check = bad(fleet(loaded), "clocks")
    assert check.status == status
    assert f"far.example is {abs(ahead) / 1000:.1f} s" in check.detail


def test_homes_that_are_not_shared_need_a_store(
    loaded: Loaded, here: Heartbeat, far: Callable[..., None]
) -> None:
    far(replace(FAR, answered=99))
    check = bad(fleet(loaded), "store")
    assert "worker 4711 on far.example has another home, /far/home" in check.detail
    assert "artifacts.url" in (check.fix or "")


def test_a_store_that_one_machine_cannot_use_is_named(
    loaded: Loaded, here: Heartbeat, far: Callable[..., None]
) -> None:
    far(replace(FAR, answered=99, artifacts="s3://other"))
    assert (
        "keeps artifacts in s3://other; here artifacts.url is not set" in bad(fleet(loaded), "store").detail
    )


@pytest.mark.parametrize(
    ("facts", "setting"),
    [
        ({"url": "http://127.0.0.1:9"}, "server.host"),
        ({"agents_url": "http://127.0.0.1:9", "agents": ("greeter",)}, "agents.host"),
    ],
)
def test_an_address_that_only_its_own_machine_reaches_is_named(
    loaded: Loaded, here: Heartbeat, far: Callable[..., None], facts: dict[str, Any], setting: str
) -> None:
    far(replace(FAR, answered=99, **facts))
    check = bad(fleet(loaded), "servers")
    assert "http://127.0.0.1:9, which only far.example itself reaches" in check.detail
    assert f"on far.example: set {setting}" in (check.fix or "")


def test_one_that_is_gone_is_told_apart_from_those_that_answer(
    loaded: Loaded, here: Heartbeat, far: Callable[..., None], ledger: Ledger
) -> None:
    far(FAR)
    with ledger.write() as tx:
        tx.connection.execute(sa.update(processes).where(processes.c.id == "far-1").values(state="dead"))
    found = of(fleet(loaded), "processes")
    # This machine's worker may have buried it meanwhile: then it is not listed at all.
    assert all("far.example has not been heard of" in each.detail for each in found if each.status == "fail")
    assert any(each.status == "ok" for each in found)


@pytest.mark.soak
def test_each_node_of_the_cluster_is_asked_and_reported(loaded: Loaded, ledger: Ledger) -> None:
    placed = load_settings(
        {
            "home": str(loaded.home),
            "database_url": loaded.settings.database_url.reveal(),
            "runtime.heartbeat_seconds": 0.05,
            "placement.kind": "processes",
            "placement.nodes": 2,
            "placement.cache": str(loaded.home / "cache"),
        },
        env={},
    )
    heart = Heartbeat(
        open_runtime(placed, ledger, Kinds()), "worker", 2, running=lambda: (), lost=lambda: None
    )
    assert nodes_in_use(placed.settings) == ()
    heart.start()
    try:
        found = fleet(placed)
    finally:
        heart.stop()
    assert {each.status for each in found} == {"ok"}, found
    assert of(found, "placement")[0].detail == "processes"
    assert of(found, "nodes")[0].detail == "2: process-1 with 1 CPUs, process-2 with 1 CPUs"
    assert [(each["name"], each["cpus"]) for each in nodes_in_use(placed.settings)] == [
        ("process-1", 1.0),
        ("process-2", 1.0),
    ]


@pytest.mark.soak
@pytest.mark.parametrize("is_there", [True, False])
def test_the_store_is_tried_by_every_process(
    tmp_path: Path, postgres_server: PostgresServer, postgres_template: str, s3: S3Server, is_there: bool
) -> None:
    bucket = s3.new_bucket() if is_there else s3.new_bucket().replace("s3://", "s3://no-")
    postgres_server.start()
    shared = postgres_server.create_database(template=postgres_template)
    given = {"database_url": shared, "runtime.heartbeat_seconds": 0.05, "artifacts.url": bucket}
    homes = [load_settings({"home": str(tmp_path / name), **given}, env={}) for name in ("one", "two")]
    with contextlib.ExitStack() as ending:
        ending.callback(postgres_server.drop_database, shared)
        for home in homes:
            opened = open_runtime(home, ending.enter_context(open_ledger(home)), Kinds())
            heart = Heartbeat(opened, "worker", 1, running=lambda: (), lost=lambda: None)
            heart.start()
            ending.callback(heart.stop)
        found = of(fleet(homes[0]), "store")
    if is_there:
        assert [each.status for each in found] == ["ok"]
        assert f"{bucket} works for everybody" in found[0].detail
    else:
        assert [each.status for each in found] == ["fail", "fail"]
        assert all(bucket in each.detail for each in found)
