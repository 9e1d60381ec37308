"""The memory in a collection of a Qdrant server."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from ratchet.kernel import Misuse
from ratchet.memory.entry import Draft, Entry, Filter, Found, MemoryCorrupt, Where, check_limit, clean
from ratchet.memory.memory import Embedder
from ratchet.memory.qdrant import sparse
from ratchet.memory.qdrant.collection import ORDER, WORDS, check, prepare
from ratchet.memory.qdrant.server import translated

if TYPE_CHECKING:
    from qdrant_client import QdrantClient, models

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

        draft = Draft.of(text, kind=kind, tags=tags, data=data, scope=scope, key=key)
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
                    vector={self._embedder.name: self._embed(draft.text), WORDS: sparse.of_text(draft.text)},
                    payload=payload,
                )
                self._client.upsert(self._collection, [point], wait=True)
        return draft.id

    def find(self, meaning: str, *, limit: int = 10, **where: Unpack[Where]) -> list[Found]:
        check_limit(limit)
        wanted = Filter.of(where)
        if not meaning.strip():
            return []
        return self._query(self._embed(clean(meaning)), self._embedder.name, wanted, limit)

    def words(self, query: str, *, limit: int = 10, **where: Unpack[Where]) -> list[Found]:
        check_limit(limit)
        wanted = Filter.of(where)
        vector = sparse.of_query(clean(query))
        return self._query(vector, WORDS, wanted, limit) if vector.indices else []

    def entries(self, *, limit: int = 100, **where: Unpack[Where]) -> list[Entry]:
        from qdrant_client import models

        check_limit(limit)
        wanted = Filter.of(where)
        with self._used():
            records, _ = self._client.scroll(
                self._collection,
                scroll_filter=_conditions(wanted),
                limit=limit,
                order_by=models.OrderBy(key=ORDER, direction=models.Direction.DESC),
            )
        return [_entry(record) for record in sorted(records, key=_age, reverse=True)]

    def delete(self, **where: Unpack[Where]) -> int:
        wanted = Filter.of(where)
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
        self, query: list[float] | models.SparseVector, using: str, wanted: Filter, limit: int
    ) -> list[Found]:
        with self._used():
            points = self._client.query_points(
                self._collection, query=query, using=using, query_filter=_conditions(wanted), limit=limit
            ).points
        return [
            Found(_entry(point), point.score)
            for point in sorted(points, key=lambda point: (-point.score, *_age(point)))
        ]

    def _embed(self, text: str) -> list[float]:
        return [float(value) for value in self._embedder.embed([text])[0]]

    def _used(self) -> Any:
        if self._closed:
            raise Misuse(f"{self._place} is closed")
        return translated(self._place)


def _conditions(wanted: Filter) -> models.Filter | None:
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


def _entry(point: models.Record | models.ScoredPoint) -> Entry:
    payload = point.payload or {}
    try:
        return Entry(
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
