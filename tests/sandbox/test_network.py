from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from ratchet.doctor.attack import hostile_argv
from ratchet.sandbox import Policy, run
from tests.sandbox.conftest import SECRET
from tests.sandbox.ways import attack, unconfined

REFUSALS = ("PermissionError", "ConnectionRefusedError", "OSError", "FileNotFoundError")


def test_a_server_of_this_machine_cannot_be_reached(way: str, listener: tuple[str, int]) -> None:
    assert unconfined("tcp", listener) == SECRET
    done = attack(way, "tcp", listener)
    assert not done.ok
    assert any(word.encode() in done.stderr for word in REFUSALS)


def test_a_datagram_does_not_arrive(way: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(0.3)
        unconfined("udp", receiver.getsockname())
        assert receiver.recv(100) == b"leak"
        attack(way, "udp", receiver.getsockname())
        with pytest.raises(TimeoutError):
            receiver.recv(100)


def test_an_abstract_socket_cannot_be_reached(way: str, abstract_listener: str) -> None:
    assert unconfined("abstract_socket", abstract_listener) == SECRET
    assert not attack(way, "abstract_socket", abstract_listener).ok


def test_an_abstract_socket_cannot_be_reached_even_with_the_network_on(abstract_listener: str) -> None:
    assert not attack("command", "abstract_socket", abstract_listener, policy=Policy(network=True)).ok


def test_the_line_to_the_host_of_a_virtual_machine_is_shut(way: str) -> None:
    assert not attack(way, "virtual_socket").ok
    if way == "command":
        assert not attack(way, "virtual_socket", policy=Policy(network=True)).ok


def test_a_command_with_the_network_on_reaches_a_server(listener: tuple[str, int]) -> None:
    done = attack("command", "tcp", listener, policy=Policy(network=True))
    assert (done.ok, done.value) == (True, SECRET)
    assert "network namespace" not in done.layers


def test_a_command_without_the_network_has_a_loopback_of_its_own(tmp_path: Path) -> None:
    program = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
print(server.accept()[0].fileno() > 0)
"""
    python = hostile_argv("", "null")[0]
    done = asyncio.run(run([python, "-I", "-c", program], cwd=Path("/tmp")))
    assert done.stdout == b"True\n"
