"""Reaching a Qdrant server, and what its errors mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from json import JSONDecodeError
from typing import TYPE_CHECKING

from ratchet.config.memory_settings import Qdrant as Settings
from ratchet.memory.entry import MemoryUnavailable
from ratchet.memory.memory import Embedder

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

    from ratchet.memory.qdrant.memory import QdrantMemory


def open_server(settings: Settings, embedder: Embedder) -> QdrantMemory:
    from ratchet.memory.qdrant.memory import QdrantMemory

    client = connect(settings)
    try:
        return QdrantMemory(client, settings.collection, embedder)
    except BaseException:
        client.close()
        raise


def reembed_server(settings: Settings, embedder: Embedder) -> int:
    from ratchet.memory.qdrant.collection import reembed_collection

    with contextlib.closing(connect(settings)) as client:
        return reembed_collection(client, settings.collection, embedder)


def connect(settings: Settings) -> QdrantClient:
    """A client for the server of the settings. Nothing is sent yet. Raises `Missing` without the extra."""
    try:
        from qdrant_client import QdrantClient
    except ModuleNotFoundError as error:
        from ratchet.extras import missing

        raise missing("qdrant", 'memory.store = "qdrant"') from error
    # As a header: given as the key, the client warns on stderr about every server without TLS, this machine's included.
    key = {} if settings.api_key is None else {"api-key": settings.api_key.get_secret_value()}
    return QdrantClient(
        url=settings.url, headers=key, timeout=settings.timeout_seconds, check_compatibility=False
    )


@contextlib.contextmanager
def translated(place: str) -> Iterator[None]:
    """Turn the errors of the client into ours."""
    from qdrant_client.common.client_exceptions import QdrantException
    from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

    try:
        yield
    except UnexpectedResponse as error:
        if error.status_code in (401, 403):
            raise MemoryUnavailable(
                f"{place} refused the key: {error.status_code}", hint="set memory.qdrant.api_key"
            ) from error
        raise MemoryUnavailable(
            f"{place} answered {error.status_code}: {_shown(error.content)}",
            hint="look at the server's log; a server older than 1.10 cannot be used",
        ) from error
    except (ResponseHandlingException, JSONDecodeError) as error:
        cause = getattr(error, "source", error)
        raise MemoryUnavailable(
            f"{place} did not answer as a Qdrant server does: {type(cause).__name__}: {cause}",
            hint="check that it is up and that memory.qdrant.url is right",
        ) from error
    except (ApiException, QdrantException) as error:
        raise MemoryUnavailable(f"{place} refused: {error}", hint="try again later") from error


def _shown(content: bytes) -> str:
    return content[:300].decode(errors="replace")
