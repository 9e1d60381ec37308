"""Leasing ports: nobody is given what another has."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.agents.servers.server import is_taken, leased_port

_PROCESSES, _EACH = 4, 50
_LEASER = """
import contextlib, sys
from ratchet.agents.servers.server import leased_port
with contextlib.ExitStack() as held:
    print(*[held.enter_context(leased_port()) for _ in range(int(sys.argv[1]))], flush=True)
    sys.stdin.read()
"""


@pytest.mark.soak
def test_leases_of_several_processes_are_all_distinct_and_none_is_ephemeral() -> None:
    leasers = [
        subprocess.Popen(
            [sys.executable, "-c", _LEASER, str(_EACH)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(_PROCESSES)
    ]
    ports: list[int] = []
    for each in leasers:
        assert each.stdout is not None
        ports += map(int, each.stdout.readline().split())
    for each in leasers:
        each.communicate()

    assert len(ports) == len(set(ports)) == _PROCESSES * _EACH
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not [port for port in ports if first <= port <= last]


def test_a_lease_is_given_back() -> None:
    claimed = "\0ratchet-port-{}"
    with leased_port() as port, socket.socket(socket.AF_UNIX) as other:
        try:
            other.bind(claimed.format(port))
        except OSError:
            held = True
        else:
            held = False
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(claimed.format(port))

    assert held


def test_a_port_is_taken_while_somebody_listens_on_it() -> None:
    with leased_port() as port:
        with socket.create_server(("127.0.0.1", port)):
            assert is_taken(port)
        assert not is_taken(port)
