"""Who keeps a version in use."""

from __future__ import annotations

import time

from ratchet.agents.contract import Role
from ratchet.agents.host.version import Occupancy


def test_a_call_holds_a_version_until_it_leaves() -> None:
    told: list[bool] = []
    occupancy = Occupancy(lambda: told.append(True))
    occupancy.enter(Role.RUNNER, None)
    occupancy.enter(Role.TUNER, None)
    occupancy.leave(Role.RUNNER, None)
    assert (occupancy.is_free, told) == (False, [])
    occupancy.leave(Role.TUNER, None)
    assert (occupancy.is_free, told) == (True, [True])


def test_a_session_holds_a_version_between_its_calls_and_belongs_to_one_server() -> None:
    occupancy = Occupancy(lambda: None)
    occupancy.open(Role.RUNNER, "s")
    occupancy.enter(Role.RUNNER, "s")
    occupancy.leave(Role.RUNNER, "s")
    assert not occupancy.is_free
    assert (occupancy.knows(Role.RUNNER, "s"), occupancy.knows(Role.TUNER, "s")) == (True, False)
    occupancy.close(Role.TUNER, "s")
    assert not occupancy.is_free
    occupancy.close(Role.RUNNER, "s")
    assert occupancy.is_free


def test_the_sessions_of_a_server_end_with_it_and_the_others_stay() -> None:
    occupancy = Occupancy(lambda: None)
    occupancy.open(Role.RUNNER, "one")
    occupancy.open(Role.TUNER, "two")
    occupancy.forget(Role.RUNNER)
    assert (occupancy.knows(Role.RUNNER, "one"), occupancy.knows(Role.TUNER, "two")) == (False, True)


def test_a_silent_session_is_over_even_while_a_request_of_it_is_open() -> None:
    occupancy = Occupancy(lambda: None)
    occupancy.open(Role.RUNNER, "s")
    occupancy.enter(Role.RUNNER, "s")
    occupancy.forget_silent(60)
    assert occupancy.sessions == 1
    deadline = time.monotonic() + 10
    while occupancy.sessions:
        assert time.monotonic() < deadline
        occupancy.forget_silent(0.01)
    occupancy.leave(Role.RUNNER, "s")
    assert occupancy.is_free


def test_a_server_that_opens_sessions_without_end_loses_the_most_silent_ones() -> None:
    occupancy = Occupancy(lambda: None)
    for number in range(10_005):
        occupancy.open(Role.RUNNER, str(number))
    assert occupancy.sessions == 10_000
    assert not occupancy.knows(Role.RUNNER, "0")
    assert occupancy.knows(Role.RUNNER, "10004")
