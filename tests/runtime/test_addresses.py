"""Where the servers of a home answer, as the other commands of the home read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.runtime.addresses import ServerAddress, announced, server_addresses


def test_a_server_is_found_for_as_long_as_it_lives_and_the_last_one_first(tmp_path: Path) -> None:
    assert server_addresses(tmp_path) == []
    first, second = ServerAddress("127.0.0.1", 1), ServerAddress("127.0.0.1", 2)
    with announced(tmp_path, first):
        with announced(tmp_path, second):
            assert server_addresses(tmp_path) == [second, first]
        assert server_addresses(tmp_path) == [first]
    assert server_addresses(tmp_path) == []
    assert list((tmp_path / "servers").iterdir()) == []


def test_what_a_dead_server_left_is_not_believed_and_goes_with_the_next(tmp_path: Path) -> None:
    left = tmp_path / "servers" / "1-1.json"
    left.parent.mkdir()
    left.write_text('{"host": "127.0.0.1", "port": 1, "pid": 1}')
    assert server_addresses(tmp_path) == []
    with announced(tmp_path, ServerAddress("127.0.0.1", 2)):
        assert not left.exists()


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:9"), ("0.0.0.0", "http://127.0.0.1:9"), ("::", "http://[::1]:9"),
     ("::1", "http://[::1]:9"), ("box.example", "http://box.example:9")],
)  # fmt: skip
def test_an_address_that_stands_for_all_is_called_by_that_of_this_machine(host: str, url: str) -> None:
    assert ServerAddress(host, 9).url == url
