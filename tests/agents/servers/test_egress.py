"""The way out of an agent's servers, and what it does not let through."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable

import pytest

from ratchet.agents.servers.egress import Egress, read_target
from ratchet.kernel import Misuse


def _ask(
    request: bytes, allowed: list[str], addresses: dict[str, list[list[str]]] | None = None
) -> tuple[bytes, list[str]]:
    """What the proxy answers to a request, and what it had resolved; each name has an answer for each time."""
    resolved: list[str] = []

    async def may() -> list[str]:
        return allowed

    async def resolve(host: str, port: int) -> Iterable[str]:
        resolved.append(host)
        return (addresses or {}).get(host, [[]]).pop(0)

    async def ask() -> bytes:
        proxy = Egress("greeter", may, resolve)
        async with await asyncio.start_server(proxy.take, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(request)
            answer = await reader.read()
            writer.close()
            proxy.close()
        return answer

    return asyncio.run(ask()), resolved


def _connect(target: str) -> bytes:
    return f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode()


@pytest.mark.parametrize(
    "target",
    [
        "169.254.169.254:80",
        "127.0.0.1:8000",
        "[::1]:8000",
        "example.com:22",
        "example.org:443",
        "notexample.com:443",
        "0x7f.1:80",
        "2130706433:80",
        "*:443",
        "*.example.com:443",
    ],
)
def test_what_is_not_allowed_is_not_even_resolved(target: str) -> None:
    answer, resolved = _ask(_connect(target), ["example.com", "*.example.com"])

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"ratchet agent egress add greeter" in answer
    assert resolved == []


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fd00::1",
        "fe80::1%eth0",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        # Where Oracle's and Azure's hosts answer their machines.
        "192.0.0.192",
        "168.63.129.16",
        "fec0::1",
        "3fff::1",
    ],
)
def test_a_name_that_leads_to_an_address_which_is_not_public_is_refused(address: str) -> None:
    answer, resolved = _ask(
        _connect("API.example.com.:443"), ["*.example.com"], {"api.example.com": [["93.184.215.14", address]]}
    )

    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"which is not public" in answer
    assert resolved == ["api.example.com"]


def test_a_name_is_resolved_once_so_that_a_second_answer_leads_nowhere_else() -> None:
    # Public by the first answer, and by the second this machine, as a hostile name server would have it. The address is
    # of a net for documents, which Python calls not public either.
    _, resolved = _ask(
        _connect("example.com:443"), ["example.com"], {"example.com": [["203.0.113.1"], ["127.0.0.1"]]}
    )

    assert resolved == ["example.com"]


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nhost: example.com\r\n\r\n",
        b"GET https://example.com/ HTTP/1.1\r\n\r\n",
        b"CONNECT example.com HTTP/1.1\r\n\r\n",
        b"CONNECT example.com:99999 HTTP/1.1\r\n\r\n",
        b"GET http://user@example.com:0/ HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01 is no HTTP\r\n\r\n",
    ],
)
def test_what_is_no_request_to_a_proxy_is_refused(request_: bytes) -> None:
    assert _ask(request_, ["example.com"])[0].startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Example.COM.", "example.com"),
        ("example.com:8443", "example.com:8443"),
        ("*.Example.com", "*.example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("93.184.215.14", "93.184.215.14"),
        ("127.0.0.1:5432", "127.0.0.1:5432"),
        ("[::1]:5432", "[::1]:5432"),
    ],
)
def test_a_target_has_one_spelling(text: str, read: str) -> None:
    assert str(read_target(text)) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "http://example.com",
        "exa mple.com",
        "a.com:0",
        "a.com:x",
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
    ],
)
def test_what_names_no_host_or_this_network_without_a_port_is_no_target(text: str) -> None:
    with pytest.raises(Misuse):
        read_target(text)


# In a network of its own, in which this machine has an address that counts as public.
_HERE = """
import asyncio, subprocess, sys
subprocess.run(["ip", "address", "add", "9.9.9.9/32", "dev", "lo"], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
from tests.agents.servers.test_egress import _ask, _connect
got = []
async def serve():
    async def take(reader, writer):
        got.append(await reader.read())
        writer.close()
    async with await asyncio.start_server(take, "9.9.9.9", 8443):
        ask = lambda target: _ask(_connect(target), ["*.example.com:8443", "9.9.9.9:8443"],
                                  {"a.example.com": [["9.9.9.9"]]})[0]
        print(await asyncio.to_thread(ask, "a.example.com:8443"), got)
        reader, writer = await asyncio.open_connection("9.9.9.9", 8443)
        writer.close()
asyncio.run(serve())
"""


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("unshare") is None or shutil.which("ip") is None, reason="needs iproute2")
def test_a_name_that_leads_to_this_machine_by_its_public_address_is_refused() -> None:
    command = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    done = subprocess.run(
        [*command, sys.executable, "-c", _HERE], capture_output=True, text=True, check=False
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("no network of its own can be had here")
    assert done.returncode == 0, done.stderr
    assert "HTTP/1.1 403 " in done.stdout
    assert "which is this machine" in done.stdout
