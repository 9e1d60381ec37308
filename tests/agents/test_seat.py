"""Who is the host of a home, and what others are told of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.agents.addresses import announce, announced, host_lock
from ratchet.agents.contract import place_of
from ratchet.kernel import Misuse


def test_only_one_has_the_seat_and_it_is_free_again_afterwards(tmp_path: Path) -> None:
    with host_lock(tmp_path) as first, host_lock(tmp_path) as second:
        assert (first, second) == (True, False)
    with host_lock(tmp_path) as third:
        assert third


def test_the_host_is_announced_for_as_long_as_it_has_the_seat(tmp_path: Path) -> None:
    assert announced(tmp_path) is None
    with host_lock(tmp_path):
        assert announced(tmp_path) is None
        announce(tmp_path, "http://127.0.0.1:1")
        assert announced(tmp_path) == "http://127.0.0.1:1"
    assert announced(tmp_path) is None


def test_who_does_not_get_the_seat_leaves_the_announcement_of_the_other(tmp_path: Path) -> None:
    with host_lock(tmp_path):
        announce(tmp_path, "http://127.0.0.1:1")
        with host_lock(tmp_path) as second:
            assert not second
        assert announced(tmp_path) == "http://127.0.0.1:1"


@pytest.mark.parametrize("left", ['{"url": "http://127.0.0.1:1", "pid": 1}', "half a file", "[]", "{}"])
def test_what_a_dead_host_left_is_not_believed(tmp_path: Path, left: str) -> None:
    with host_lock(tmp_path):
        pass
    (tmp_path / "agents" / "host.json").write_text(left)
    assert announced(tmp_path) is None


def test_a_new_host_does_not_pass_for_the_dead_one(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "host.json").write_text('{"url": "http://127.0.0.1:1", "pid": 1}')
    with host_lock(tmp_path):
        assert announced(tmp_path) is None


@pytest.mark.parametrize("name", ["host.lock", "host.json"])
def test_no_agent_can_be_called_like_a_file_of_the_host(tmp_path: Path, name: str) -> None:
    with pytest.raises(Misuse):
        place_of(tmp_path, name)
