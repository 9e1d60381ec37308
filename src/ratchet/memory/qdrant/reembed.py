"""Making the vectors of a collection anew, with another embedder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.memory.embedder import Embedder
from ratchet.memory.qdrant.collection import embedders, prepare
from ratchet.memory.qdrant.server import translated

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

_BATCH = 256


def reembed_collection(client: QdrantClient, collection: str, embedder: Embedder) -> int:
    """New vectors beside the old ones, then the old ones go; until then nobody can open the memory. Returns how many.

    Cut short, the next call goes on with the entries that have none yet.
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
    while records := client.scroll(collection, scroll_filter=without, limit=_BATCH)[0]:
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
