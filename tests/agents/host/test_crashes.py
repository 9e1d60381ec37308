"""How crashes are counted, and how long the next start waits."""

from __future__ import annotations

import time

from ratchet.agents.host.supervisor import Crashes, pause_after
from ratchet.config.workflow_settings import Agents


def test_pauses_double_up_to_the_cap() -> None:
    settings = Agents(restart_seconds=1, restart_cap_seconds=5)
    assert [pause_after(failures, settings) for failures in (1, 2, 3, 4, 10_000)] == [1, 2, 4, 5, 5]


def test_the_last_crash_that_is_borne_is_one_less_than_the_setting() -> None:
    crashes = Crashes(Agents(crashes=3))
    borne = []
    for _ in range(3):
        crashes.add()
        borne.append(not crashes.too_many)
    assert borne == [True, True, False]
    crashes.forget()
    assert (crashes.count, crashes.too_many) == (0, False)


def test_a_crash_is_forgotten_in_time() -> None:
    crashes = Crashes(Agents(crashes=1, crash_seconds=0.05))
    crashes.add()
    assert crashes.too_many
    deadline = time.monotonic() + 10
    while crashes.count:
        assert time.monotonic() < deadline
    assert not crashes.too_many
