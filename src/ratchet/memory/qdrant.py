"""The memory in a collection of a Qdrant server, for a fleet on several machines."""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, Unpack

from ratchet.config.workflow_settings import Qdrant as Settings
from ratchet.kernel import Misuse, decoded
from ratchet.memory.embedders import folded, indexed, query_words
from ratchet.memory.memory import (
    Embedder,
    FoundEntry,
    MemoryCorrupt,
    MemoryDraft,
    MemoryEntry,
    MemoryFilter,
    MemoryUnavailable,
    Where,
    WrongEmbedder,
    check_limit,
    clean,
)

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models
    from qdrant_client.models import SparseVector


# BM25 with its usual constants. The server knows how rare a term is; how long texts are on average it does not.
_SATURATION = 1.2
_LENGTH_SHARE = 0.75
_USUAL_LENGTH = 64


def sparse_text(text: str) -> SparseVector:
    terms = indexed(text)
    length = 1 - _LENGTH_SHARE + _LENGTH_SHARE * len(terms) / _USUAL_LENGTH
    return _vector(
        {
            term: count * (_SATURATION + 1) / (count + _SATURATION * length)
            for term, count in Counter(terms).items()
        }
    )


def sparse_query(query: str) -> SparseVector:
    return _vector({folded(word): 1.0 for word in query_words(query)})


def _vector(weights: dict[str, float]) -> SparseVector:
    from qdrant_client.models import SparseVector

    # Of two terms with one number the later counts; among 4 billion numbers that is rarer than a spelling mistake.
    numbered = {zlib.crc32(term.encode()): weight for term, weight in weights.items()}
    return SparseVector(indices=list(numbered), values=list(numbered.values()))


_REEMBED_BATCH = 256


def reembed_collection(client: QdrantClient, collection: str, embedder: Embedder) -> int:
    """New vectors beside the old ones, then the old ones go; until then nobody can open the memory. Returns how many.

    Cut short, the next call continues with the entries that have none yet.
    """
    from qdrant_client import models

    with translated(f"the Qdrant collection {collection}"):
        prepare(client, collection, embedder)
        present = embedders(client, collection)
        if embedder.name not in present:
            dense = models.DenseVectorConfig(size=embedder.dimension, distance=models.Distance.COSINE)
            client.create_vector_name(collection, embedder.name, models.DenseVectorNameConfig(dense=dense))
        done = _fill(client, collection, embedder)
        for name in sorted(present.keys() - {embedder.name}):
            client.delete_vector_name(collection, name)
        # Somebody who had the memory open may have stored with the old embedder until it was gone.
        return done + _fill(client, collection, embedder)


def _fill(client: QdrantClient, collection: str, embedder: Embedder) -> int:
    from qdrant_client import models

    without = models.Filter(must_not=[models.HasVectorCondition(has_vector=embedder.name)])
    done = 0
    while records := client.scroll(collection, scroll_filter=without, limit=_REEMBED_BATCH)[0]:
        vectors = embedder.embed([(record.payload or {})["text"] for record in records])
        client.update_vectors(
            collection,
            [
                models.PointVectors(id=record.id, vector={embedder.name: vector.tolist()})
                for record, vector in zip(records, vectors, strict=True)
            ],
            wait=True,
        )
        done += len(records)
    return done


WORDS = "words"
# What entries are listed by. In nanoseconds: several are stored within a millisecond.
ORDER = "order"


def prepare(client: QdrantClient, collection: str, embedder: Embedder) -> None:
    """Make the collection unless it is there. The vectors of an embedder are called by its name."""
    from qdrant_client import models
    from qdrant_client.http.exceptions import UnexpectedResponse

    if not client.collection_exists(collection):
        dense = models.VectorParams(size=embedder.dimension, distance=models.Distance.COSINE)
        words = models.SparseVectorParams(modifier=models.Modifier.IDF)
        try:
            client.create_collection(
                collection, vectors_config={embedder.name: dense}, sparse_vectors_config={WORDS: words}
            )
        except UnexpectedResponse:
            # Another process may have been first.
            if not client.collection_exists(collection):
                raise
    # Whoever made the collection may have died before it made the indexes.
    keyword, number = models.PayloadSchemaType.KEYWORD, models.PayloadSchemaType.INTEGER
    indexes = {"kind": keyword, "tags": keyword, "scope": keyword, ORDER: number}
    for field in indexes.keys() - client.get_collection(collection).payload_schema.keys():
        client.create_payload_index(collection, field, indexes[field])


def check(client: QdrantClient, collection: str, embedder: Embedder) -> None:
    """Raise unless every vector of the collection was made by this embedder."""
    names = embedders(client, collection)
    if names != {embedder.name: embedder.dimension}:
        made_by = " and ".join(sorted(names)) or "nobody"
        raise WrongEmbedder(f"the collection {collection}", made_by, embedder.name)


def embedders(client: QdrantClient, collection: str) -> dict[str, int]:
    """Who made the vectors of the collection, with their dimension: two while they are made again."""
    parameters = client.get_collection(collection).config.params
    vectors = parameters.vectors
    if not isinstance(vectors, dict) or WORDS not in (parameters.sparse_vectors or {}):
        raise MemoryCorrupt(
            f"the collection {collection} is not a memory of Ratchet",
            hint="set memory.qdrant.collection to a name of its own",
        )
    return {name: parameters.size for name, parameters in vectors.items()}


def open_server(settings: Settings, embedder: Embedder) -> QdrantMemory:
    client = connect(settings)
    try:
        return QdrantMemory(client, settings.collection, embedder)
    except BaseException:
        client.close()
        raise


def reembed_server(settings: Settings, embedder: Embedder) -> int:
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
    return decoded(content[:300])


_BATCH = 1_000


class QdrantMemory:
    """One collection. What one process stores, the next search of any other finds."""

    def __init__(self, client: QdrantClient, collection: str, embedder: Embedder) -> None:
        self._client = client
        self._collection = collection
        self._embedder = embedder
        self._closed = False
        self._place = f"the Qdrant collection {collection}"
        with translated(self._place):
            prepare(client, collection, embedder)
            check(client, collection, embedder)

    def store(
        self,
        text: str,
        *,
        kind: str,
        tags: Collection[str] = (),
        data: Mapping[str, Any] | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> str:
        from qdrant_client import models

        draft = MemoryDraft.of(text, kind=kind, tags=tags, data=data, scope=scope, key=key)
        payload: dict[str, Any] = {
            "kind": draft.kind,
            "text": draft.text,
            "tags": sorted(draft.tags),
            # As text, which can hold every JSON value as it is.
            "data": draft.data,
            "scope": draft.scope,
        }
        with self._used():
            known = self._client.retrieve(self._collection, [draft.id]) if key is not None else []
            payload[ORDER] = _age(known[0])[0] if known else time.time_ns()
            if not known or known[0].payload != payload:
                point = models.PointStruct(
                    id=draft.id,
                    vector={self._embedder.name: self._embed(draft.text), WORDS: sparse_text(draft.text)},
                    payload=payload,
                )
                self._client.upsert(self._collection, [point], wait=True)
        return draft.id

    def find(self, meaning: str, *, limit: int = 10, **where: Unpack[Where]) -> list[FoundEntry]:
        check_limit(limit)
        wanted = MemoryFilter.of(where)
        if not meaning.strip():
            return []
        return self._query(self._embed(clean(meaning)), self._embedder.name, wanted, limit)

    def words(self, query: str, *, limit: int = 10, **where: Unpack[Where]) -> list[FoundEntry]:
        check_limit(limit)
        wanted = MemoryFilter.of(where)
        vector = sparse_query(clean(query))
        return self._query(vector, WORDS, wanted, limit) if vector.indices else []

    def entries(self, *, limit: int = 100, **where: Unpack[Where]) -> list[MemoryEntry]:
        from qdrant_client import models

        check_limit(limit)
        wanted = MemoryFilter.of(where)
        with self._used():
            records, _ = self._client.scroll(
                self._collection,
                scroll_filter=_conditions(wanted),
                limit=limit,
                order_by=models.OrderBy(key=ORDER, direction=models.Direction.DESC),
            )
        return [_entry(record) for record in sorted(records, key=_age, reverse=True)]

    def delete(self, **where: Unpack[Where]) -> int:
        wanted = MemoryFilter.of(where)
        if wanted.empty:
            raise Misuse("nothing says which entries to forget", hint="name an id, a kind, tags or a scope")
        count = 0
        with self._used():
            # By id, since only then it is known how many there were.
            while records := self._client.scroll(
                self._collection, scroll_filter=_conditions(wanted), limit=_BATCH, with_payload=False
            )[0]:
                self._client.delete(self._collection, [record.id for record in records], wait=True)
                count += len(records)
        return count

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._client.close()

    def _query(
        self, query: list[float] | models.SparseVector, using: str, wanted: MemoryFilter, limit: int
    ) -> list[FoundEntry]:
        with self._used():
            points = self._client.query_points(
                self._collection, query=query, using=using, query_filter=_conditions(wanted), limit=limit
            ).points
        return [
            FoundEntry(_entry(point), point.score)
            for point in sorted(points, key=lambda point: (-point.score, *_age(point)))
        ]

    def _embed(self, text: str) -> list[float]:
        return [float(value) for value in self._embedder.embed([text])[0]]

    def _used(self) -> Any:
        if self._closed:
            raise Misuse(f"{self._place} is closed")
        return translated(self._place)


def _conditions(wanted: MemoryFilter) -> models.Filter | None:
    from qdrant_client import models

    exact = [("kind", wanted.kind), ("scope", wanted.scope), *(("tags", tag) for tag in sorted(wanted.tags))]
    conditions: list[models.Condition] = [
        models.FieldCondition(key=field, match=models.MatchValue(value=value))
        for field, value in exact
        if value is not None
    ]
    if wanted.id is not None:
        conditions.append(models.HasIdCondition(has_id=[wanted.id]))
    return models.Filter(must=conditions) if conditions else None


def _entry(point: models.Record | models.ScoredPoint) -> MemoryEntry:
    payload = point.payload or {}
    try:
        return MemoryEntry(
            id=str(point.id),
            kind=payload["kind"],
            text=payload["text"],
            tags=frozenset(payload["tags"]),
            data=json.loads(payload["data"]),
            scope=payload["scope"],
            created_at=payload[ORDER] // 1_000_000,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MemoryCorrupt(
            f"point {point.id} of the collection is not an entry of a memory: {error!r}",
            hint="remove it, or set memory.qdrant.collection to a name that nothing else uses",
        ) from error


def _age(point: models.Record | models.ScoredPoint) -> tuple[int, str]:
    return (point.payload or {}).get(ORDER, 0), str(point.id)
