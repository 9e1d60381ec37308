"""Texts as sparse vectors of their words, so that the server's product of two of them is BM25."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import TYPE_CHECKING

from ratchet.memory.shared_words import folded, indexed, query_words

if TYPE_CHECKING:
    from qdrant_client.models import SparseVector

# BM25 with its usual constants. The server knows how rare a term is; how long texts are on average it does not.
_SATURATION = 1.2
_LENGTH_SHARE = 0.75
_USUAL_LENGTH = 64


def of_text(text: str) -> SparseVector:
    terms = indexed(text)
    length = 1 - _LENGTH_SHARE + _LENGTH_SHARE * len(terms) / _USUAL_LENGTH
    return _vector(
        {
            term: count * (_SATURATION + 1) / (count + _SATURATION * length)
            for term, count in Counter(terms).items()
        }
    )


def of_query(query: str) -> SparseVector:
    return _vector({folded(word): 1.0 for word in query_words(query)})


def _vector(weights: dict[str, float]) -> SparseVector:
    from qdrant_client.models import SparseVector

    # Of two terms with one number the later counts; among 4 billion numbers that is rarer than a spelling mistake.
    numbered = {zlib.crc32(term.encode()): weight for term, weight in weights.items()}
    return SparseVector(indices=list(numbered), values=list(numbered.values()))
