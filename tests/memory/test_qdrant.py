"""The Qdrant store: the server's refusals, other embedders, and what is unfit to be a memory."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from pydantic import SecretStr
from qdrant_client import QdrantClient, models

from ratchet.config.workflow_settings import MemorySettings as Settings
from ratchet.config.workflow_settings import Qdrant
from ratchet.memory import MemoryCorrupt, MemoryUnavailable, WrongEmbedder, open_memory, reembed
from ratchet.memory.qdrant import open_server
from tests.memory.actors import Letters
from tests.memory.qdrant_server import serving


def settings(url: str, **options: object) -> Settings:
    return Settings(store="qdrant", qdrant=Qdrant(url=url, **options))  # type: ignore[arg-type]


def test_collections_are_apart(qdrant_url: str, tmp_path: Path) -> None:
    one = open_memory(settings(qdrant_url, collection="one"), tmp_path, Letters())
    two = open_memory(settings(qdrant_url, collection="two"), tmp_path, Letters())
    with contextlib.closing(one), contextlib.closing(two):
        one.store("text", kind="work")
        assert (len(one.entries()), len(two.entries())) == (1, 0)


def test_the_key_of_the_settings_opens_the_server(tmp_path: Path) -> None:
    with serving(key="open sesame") as url:
        with contextlib.closing(
            open_memory(settings(url, api_key=SecretStr("open sesame")), tmp_path, Letters())
        ) as memory:
            assert memory.entries() == []
        for wrong in (None, SecretStr("please")):
            with pytest.raises(MemoryUnavailable, match="refused the key: 401") as raised:
                open_memory(settings(url, api_key=wrong), tmp_path, Letters())
            assert "memory.qdrant.api_key" in str(raised.value.hint)
            assert "please" not in str(raised.value)


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(MemoryUnavailable, match="did not answer") as raised:
            open_memory(settings(url), tmp_path, Letters())
    assert "memory.qdrant.url" in str(raised.value.hint)


@contextlib.contextmanager
def answering(status: int, content: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "content", "says"),
    [
        (200, b"<html>hello</html>", "did not answer as a Qdrant server does"),
        (200, b'{"result": 7}', "did not answer as a Qdrant server does"),
        (500, b"out of luck", "answered 500: out of luck"),
        (429, b"slower", "answered 429"),
    ],
)
def test_something_else_at_the_address_is_told(
    tmp_path: Path, status: int, content: bytes, says: str
) -> None:
    with answering(status, content) as url, pytest.raises(MemoryUnavailable, match=says):
        open_memory(settings(url), tmp_path, Letters())


@pytest.mark.soak
def test_a_server_that_does_not_answer_in_time_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(MemoryUnavailable, match="ReadTimeout"):
            open_memory(settings(url, timeout_seconds=1), tmp_path, Letters())


@pytest.mark.soak
def test_another_embedder_is_refused_until_the_vectors_are_made_anew(qdrant_url: str, tmp_path: Path) -> None:
    other = Letters("other", 13)
    with contextlib.closing(open_memory(settings(qdrant_url), tmp_path, Letters())) as memory:
        for number in range(5):
            memory.store(f"entry number{number}", kind="work")
    with pytest.raises(WrongEmbedder, match="made by letters, not by other"):
        open_memory(settings(qdrant_url), tmp_path, other)
    assert reembed(settings(qdrant_url), tmp_path, other) == 5
    with contextlib.closing(open_memory(settings(qdrant_url), tmp_path, other)) as memory:
        assert len(memory.find("entry")) == len(memory.words("entry")) == 5
    with pytest.raises(WrongEmbedder):
        open_memory(settings(qdrant_url), tmp_path, Letters())


def test_vectors_that_are_half_made_anew_are_refused_and_finished(qdrant_url: str, tmp_path: Path) -> None:
    other = Letters("other", 13)
    with contextlib.closing(open_memory(settings(qdrant_url), tmp_path, Letters())) as memory:
        memory.store("entry one", kind="work")
        memory.store("entry two", kind="work")
    with contextlib.closing(QdrantClient(url=qdrant_url, check_compatibility=False)) as client:
        dense = models.DenseVectorConfig(size=13, distance=models.Distance.COSINE)
        client.create_vector_name("ratchet", "other", models.DenseVectorNameConfig(dense=dense))
    with pytest.raises(WrongEmbedder, match="made by letters and other"):
        open_memory(settings(qdrant_url), tmp_path, other)
    assert reembed(settings(qdrant_url), tmp_path, other) == 2
    with contextlib.closing(open_memory(settings(qdrant_url), tmp_path, other)) as memory:
        assert len(memory.find("entry")) == 2


def test_the_collection_of_another_program_is_left_alone(qdrant_url: str, tmp_path: Path) -> None:
    with contextlib.closing(QdrantClient(url=qdrant_url, check_compatibility=False)) as client:
        client.create_collection(
            "ratchet", vectors_config=models.VectorParams(size=3, distance=models.Distance.DOT)
        )
    with pytest.raises(MemoryCorrupt, match="not a memory"):
        open_memory(settings(qdrant_url), tmp_path, Letters())


def test_a_foreign_point_is_told(qdrant_url: str) -> None:
    with contextlib.closing(open_server(Qdrant(url=qdrant_url), Letters())) as memory:
        with contextlib.closing(QdrantClient(url=qdrant_url, check_compatibility=False)) as client:
            point = models.PointStruct(id=7, vector={"letters": [0.1] * 26}, payload={"kind": "work"})
            client.upsert("ratchet", [point])
        with pytest.raises(MemoryCorrupt, match="point 7"):
            memory.find("entry")


WITHOUT_THE_EXTRA = """
import sys
from pathlib import Path

sys.modules["qdrant_client"] = None  # as if it were not installed
from ratchet.config.workflow_settings import MemorySettings, Qdrant
from ratchet.kernel import Missing
from ratchet.memory import open_memory

try:
    open_memory(MemorySettings(store="qdrant", qdrant=Qdrant(url="http://127.0.0.1:6333")), Path("."))
except Missing as error:
    print(error, error.hint, error.exit_code)
"""


def test_without_the_extra_it_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_EXTRA], capture_output=True, text=True, check=True
    )
    assert "qdrant-client" in done.stdout
    assert done.stdout.endswith(" 3\n")
