"""Where the server listens, and where it refuses to."""

from __future__ import annotations

import socket

import pytest

from ratchet.kernel import ConfigError, Conflict, Misuse
from ratchet.server.address import listen, url_of


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost"])
def test_this_machine_alone_may_come_with_a_generated_token(host: str) -> None:
    with listen(host, 0, token_configured=False) as bound:
        assert url_of(bound).startswith("http://127.")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", socket.gethostbyname(socket.gethostname()) or "0.0.0.0"])
def test_others_may_not(host: str) -> None:
    if host.startswith("127."):
        pytest.skip("this machine's name leads to itself")
    with pytest.raises(ConfigError, match="other machines can reach") as error:
        listen(host, 0, token_configured=False)
    assert "server.token" in str(error.value.hint)


def test_a_token_that_somebody_chose_opens_the_door() -> None:
    with listen("0.0.0.0", 0, token_configured=True) as bound:
        assert url_of(bound).startswith("http://0.0.0.0:")


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """asyncio switches Nagle's delay off only for a socket that is named as TCP."""
    with listen("127.0.0.1", 0, token_configured=False) as bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_a_taken_port_says_so() -> None:
    with listen("127.0.0.1", 0, token_configured=False) as bound:
        bound.listen()
        port = bound.getsockname()[1]
        with pytest.raises(Conflict, match=f"port {port} of 127.0.0.1 is taken"):
            listen("127.0.0.1", port, token_configured=False)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 300, "192.0.2.1", "a b", "\x00"])
def test_an_address_that_is_not_ours_is_misuse(host: str) -> None:
    with pytest.raises((Misuse, ConfigError), match="cannot listen"):
        listen(host, 0, token_configured=True)
