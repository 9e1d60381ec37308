"""Who is dead: judged by silence on our own clock, or by the kernel on the same machine."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from ratchet.ledger import Ledger
from ratchet.ledger.processes import process_identity
from ratchet.runtime import list_processes, processes
from ratchet.runtime.processes import Process, Watch

ELSEWHERE = Process(
    id="far-away",
    role="worker",
    host="elsewhere",
    pid=1,
    identity="other-boot/pid:[1]/1-1",
    version="0",
    state="alive",
    slots=1,
    busy=0,
    beat=0,
    started_at=0,
    beat_at=0,
    metrics=None,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_process_that_stays_silent_for_the_limit_is_dead() -> None:
    clock = Clock()
    watch = Watch("me", 10, clock)
    assert watch.dead([ELSEWHERE]) == []
    clock.now += 10
    assert watch.dead([ELSEWHERE]) == []
    clock.now += 0.1
    assert watch.dead([ELSEWHERE]) == [ELSEWHERE]


def test_a_process_that_beats_lives_whatever_its_wall_clock_says() -> None:
    clock = Clock()
    watch = Watch("me", 10, clock)
    for beat in range(20):
        clock.now += 9
        jumping = replace(ELSEWHERE, beat=beat, beat_at=beat * -1_000_000_000)
        assert watch.dead([jumping]) == []


def test_nobody_dies_of_a_database_that_was_away() -> None:
    clock = Clock()
    watch = Watch("me", 10, clock)
    watch.dead([ELSEWHERE])
    clock.now += 60
    watch.blind()
    assert watch.dead([ELSEWHERE]) == []


def test_a_process_of_this_machine_that_ended_is_dead_at_once() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = process_identity(child.pid)
    assert identity is not None
    here = replace(ELSEWHERE, id="here", pid=child.pid, identity=identity)
    assert Watch("me", 10).dead([here]) == []
    child.communicate()
    assert Watch("me", 10).dead([here]) == [here]


def test_a_new_process_under_an_old_number_is_not_the_old_one() -> None:
    mine = process_identity(os.getpid())
    assert mine is not None
    earlier = replace(ELSEWHERE, id="old", pid=os.getpid(), identity=mine[:-1] + "x")
    assert Watch("me", 10).dead([earlier]) == [earlier]


def test_the_sums_of_a_gone_process_are_kept(ledger: Ledger) -> None:
    with ledger.write() as tx:
        for name in ("one", "two"):
            processes.register(tx, name, "worker", 1)
            assert processes.beat(tx, name, busy=0, draining=False, snapshot={"jobs": 2.0}) == 0
    with ledger.write() as tx:
        assert processes.leave(tx, "one", reason="test")
        assert processes.leave(tx, "two", reason="test")
        assert not processes.leave(tx, "two", reason="again")
    with ledger.read() as tx:
        assert list_processes(tx) == []
        assert processes.all_snapshots(tx) == [{"jobs": 4.0}]


def test_a_process_that_was_given_up_learns_it_from_its_beat(ledger: Ledger) -> None:
    with ledger.write() as tx:
        processes.register(tx, "me", "worker", 1)
        [me] = list_processes(tx)
        assert processes.declare_dead(tx, me)
        assert processes.beat(tx, "me", busy=0, draining=False, snapshot=None) is None


def test_a_process_that_beat_meanwhile_is_not_given_up(ledger: Ledger) -> None:
    with ledger.write() as tx:
        processes.register(tx, "me", "worker", 1)
        [seen] = list_processes(tx)
        processes.beat(tx, "me", busy=0, draining=False, snapshot=None)
        assert not processes.declare_dead(tx, seen)
