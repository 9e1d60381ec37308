"""The requests of a Qdrant server, answered by the local mode of its own client.

It shows that what we send and read goes through the real client, real HTTP and the real formats. It does not show how
a server behaves: its index, its timing, its limits.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic import TypeAdapter
from qdrant_client import QdrantClient, models

Answer = Callable[..., Any]


def _get(client: QdrantClient, name: str, body: Any) -> Any:
    return client.get_collection(name)


def _create(client: QdrantClient, name: str, body: Any) -> Any:
    wanted = models.CreateCollection(**body)
    return client.create_collection(
        name, vectors_config=wanted.vectors, sparse_vectors_config=wanted.sparse_vectors
    )


def _upsert(client: QdrantClient, name: str, body: Any) -> Any:
    return client.upsert(name, models.PointsList(**body).points)


def _query(client: QdrantClient, name: str, body: Any) -> Any:
    wanted = models.QueryRequest(**body)
    query = wanted.query
    if isinstance(query, models.NearestQuery):
        query = query.nearest
    return client.query_points(
        name,
        query=query,
        using=wanted.using,
        query_filter=wanted.filter,
        limit=wanted.limit or 10,
        with_payload=True,
    )


def _retrieve(client: QdrantClient, name: str, body: Any) -> Any:
    return client.retrieve(name, models.PointRequest(**body).ids)


def _scroll(client: QdrantClient, name: str, body: Any) -> Any:
    wanted = models.ScrollRequest(**body)
    points, following = client.scroll(
        name,
        scroll_filter=wanted.filter,
        limit=wanted.limit or 10,
        order_by=wanted.order_by,
        with_payload=wanted.with_payload if wanted.with_payload is not None else True,
    )
    return models.ScrollResult(points=points, next_page_offset=following)


def _delete(client: QdrantClient, name: str, body: Any) -> Any:
    return client.delete(name, models.PointIdsList(**body).points)


def _index(client: QdrantClient, name: str, body: Any) -> Any:
    wanted = models.CreateFieldIndex(**body)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return client.create_payload_index(name, wanted.field_name, wanted.field_schema)


def _exists(client: QdrantClient, name: str, body: Any) -> Any:
    return models.CollectionExistence(exists=client.collection_exists(name))


def _update_vectors(client: QdrantClient, name: str, body: Any) -> Any:
    return client.update_vectors(name, models.UpdateVectors(**body).points)


def _add_vectors(client: QdrantClient, name: str, body: Any, vectors: str) -> Any:
    return client.create_vector_name(name, vectors, models.DenseVectorNameConfig(**body))


def _drop_vectors(client: QdrantClient, name: str, body: Any, vectors: str) -> Any:
    return client.delete_vector_name(name, vectors)


ANSWERS: dict[tuple[str, str], Answer] = {
    ("GET", ""): _get,
    ("PUT", ""): _create,
    ("GET", "/exists"): _exists,
    ("PUT", "/index"): _index,
    ("PUT", "/points"): _upsert,
    ("POST", "/points"): _retrieve,
    ("POST", "/points/query"): _query,
    ("POST", "/points/scroll"): _scroll,
    ("POST", "/points/delete"): _delete,
    ("PUT", "/points/vectors"): _update_vectors,
    ("PUT", "/vectors/"): _add_vectors,
    ("DELETE", "/vectors/"): _drop_vectors,
}
PATH = re.compile(r"/collections/([^/?]+)(/vectors/(?=[^?])|[^?]*)([^?]*)")


@contextlib.contextmanager
def serving(*, key: str | None = None) -> Iterator[str]:
    """The address of a server that asks for `key`, if one is given."""
    client = QdrantClient(":memory:")
    turn = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            found = PATH.match(self.path)
            assert found is not None, self.path
            name, rest, *more = filter(None, found.groups()) if found[3] else (found[1], found[2])
            if key is not None and self.headers.get("api-key") != key:
                return self.send(401, {"status": {"error": "Must provide an API key"}})
            with turn:
                try:
                    result = ANSWERS[self.command, rest](client, name, body, *more)
                except ValueError as error:
                    return self.send(404, {"status": {"error": str(error)}})
            shown = TypeAdapter(Any).dump_python(result, mode="json", exclude_none=True)
            return self.send(200, {"result": shown, "status": "ok", "time": 0.0})

        do_GET = do_PUT = do_POST = do_DELETE = answer

        def send(self, status: int, document: Any) -> None:
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            client.close()
