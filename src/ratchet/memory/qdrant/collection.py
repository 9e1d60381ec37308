"""The collection that holds a memory: its vectors, whether it can be used, and embedding it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.memory.entry import MemoryCorrupt, WrongEmbedder
from ratchet.memory.memory import Embedder
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
    """Who made the vectors of the collection, with their dimension: two while they are made anew."""
    parameters = client.get_collection(collection).config.params
    vectors = parameters.vectors
    if not isinstance(vectors, dict) or WORDS not in (parameters.sparse_vectors or {}):
        raise MemoryCorrupt(
            f"the collection {collection} is not a memory of Ratchet",
            hint="set memory.qdrant.collection to a name of its own",
        )
    return {name: parameters.size for name, parameters in vectors.items()}
