"""The collection that holds a memory: its vectors, and whether it can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.memory.embedder import Embedder
from ratchet.memory.errors import MemoryCorrupt, WrongEmbedder

if TYPE_CHECKING:
    from qdrant_client import QdrantClient

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
