from __future__ import annotations

import threading
import time
from functools import partial

from ratchet.doctor import ProbeCheck, run_all


def fine(name: str = "fine") -> list[ProbeCheck]:
    return [ProbeCheck(name, "ok", "well")]


def broken_probe() -> list[ProbeCheck]:
    raise RuntimeError("out of order")


def test_checks_come_in_the_order_of_the_probes() -> None:
    def slow() -> list[ProbeCheck]:
        time.sleep(0.1)
        return fine("slow")

    assert [each.name for each in run_all([slow, partial(fine, "a"), list, partial(fine, "b")])] == [
        "slow",
        "a",
        "b",
    ]


def test_a_probe_that_raises_has_failed_and_the_others_are_heard() -> None:
    first, second = run_all([broken_probe, fine])
    assert (first.name, first.status) == ("broken probe", "fail")
    assert "RuntimeError: out of order" in first.detail
    assert second.status == "ok"


def test_a_probe_that_hangs_is_given_up_at_the_limit() -> None:
    release = threading.Event()

    def hanging() -> list[ProbeCheck]:
        release.wait()
        return []

    late, heard = run_all([hanging, fine], seconds=0.3)
    release.set()
    assert (late.name, late.status, late.detail) == ("hanging", "fail", "no answer within 0.3 s")
    assert heard.status == "ok"


def test_probes_run_side_by_side() -> None:
    barrier = threading.Barrier(4, timeout=120)

    def meeting() -> list[ProbeCheck]:
        barrier.wait()
        return fine()

    assert {each.status for each in run_all([meeting] * 4)} == {"ok"}
