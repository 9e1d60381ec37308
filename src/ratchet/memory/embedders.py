"""The memory that the settings name, and its embedders: shared words, which needs nothing, and the static word
vectors of the extra `memory`.

Each word has a place and a sign in the vector by its hash, and so has its beginning, for words that differ only in
their ending. What is put in other words is not found; the extra `memory` brings word vectors (`WordLlama`) for that.
"""

from __future__ import annotations

import importlib.util
import re
import threading
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.kernel import Missing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


from ratchet.config.workflow_settings import MemorySettings as Settings
from ratchet.memory.memory import Embedder, Memory

# Everything between spaces and the punctuation of ASCII. The underscore stays: it holds an identifier together.
_WORD = re.compile(r"[^\s\x00-\x1f\x7f!-/:-@\[-^`{-~]+")
_PART = re.compile(r"[^\W_]+")
# More words than anybody types; a pasted page is cut here.
MOST_WORDS = 64


def query_words(query: str) -> list[str]:
    """The different words of `query` that hold a letter or a digit."""
    found = {folded(word): word for word in _WORD.findall(query) if _PART.search(word)}
    return list(found.values())[:MOST_WORDS]


def parts(word: str) -> list[str]:
    """The pieces of a word that an index knows: `parse` and `csv` of `parse_csv`."""
    return _PART.findall(folded(word))


def indexed(text: str) -> list[str]:
    """Every term of `text`, once for each time it is there; an identifier counts whole and in pieces."""
    terms = []
    for word in _WORD.findall(text):
        whole = folded(word)
        pieces = parts(word)
        terms += pieces if pieces == [whole] else [*pieces, whole] if pieces else []
    return terms


def folded(word: str) -> str:
    """`word` without case and accents."""
    plain = unicodedata.normalize("NFKD", word.lower())
    return "".join(character for character in plain if not unicodedata.combining(character))


# As far as `WordLlama` reads.
_READ = 16_000
_BEGINNING = 5
_BEGINNING_COUNTS = 0.6
# Words that are in every English text and say nothing about it.
_ENGLISH = """
    a all an and any are as at be been but by can do does for from had has have he her his how i if in into is it its
    me my no not of on or our please she so some such than that the their them then there these they this to us was
    we were what when which who will with would you your
"""
_EMPTY = frozenset(_ENGLISH.split())


class SharedWords:
    """A text is the sum of its words; any thread may use it."""

    name = "shared-words-512"
    dimension = 512

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for feature, weight in _features(text[:_READ]):
                hashed = zlib.crc32(feature.encode())
                vector[hashed % self.dimension] += weight if hashed & 0x8000_0000 else -weight
            vector /= max(float(np.linalg.norm(vector)), 1e-12)
        return vectors


def _features(text: str) -> Iterator[tuple[str, float]]:
    words = Counter(indexed(text))
    # A text of empty words alone is still like itself.
    telling = {word: count for word, count in words.items() if word not in _EMPTY} or words
    for word, count in telling.items():
        weight = count**0.5
        yield word, weight
        if len(word) > _BEGINNING:
            yield f"{word[:_BEGINNING]}-", weight * _BEGINNING_COUNTS


_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENS = "tokenizers/l2_supercat_tokenizer_config.json"
# The mean of many words says little more than that of the first few thousand, and a long text takes long to split.


class _Model(NamedTuple):
    tokenizer: Any
    weights: NDArray[np.float16]


class WordLlama:
    """A text is the mean of the vectors of its tokens. Loaded when first used; any thread may use it."""

    name = "wordllama-l2-supercat-256"
    dimension = 256

    def __init__(self) -> None:
        self._model: _Model | None = None
        # Loading takes a tenth of a second and 20 MB: threads that come meanwhile wait for the one model.
        self._loading = threading.Lock()

    @staticmethod
    def is_installed() -> bool:
        return _directory() is not None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        import numpy as np

        tokenizer, weights = self._load()
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            # One by one: the tokenizer's batches start threads, which a later fork would not survive.
            tokens = tokenizer.encode(text[:_READ], add_special_tokens=False).ids
            if tokens:
                vector[:] = weights[tokens].astype(np.float32).mean(axis=0)
                vector /= max(float(np.linalg.norm(vector)), 1e-12)
        return vectors

    def _load(self) -> _Model:
        with self._loading:
            if self._model is None:
                self._model = _load()
            return self._model


def _load() -> _Model:
    directory = _directory()
    if directory is None:
        # Only now: it reads what the installation says of itself.
        from ratchet.extras import install_line

        raise Missing(
            "the word vectors that this memory was made with are not installed (the extra 'memory')",
            hint=f"{install_line('memory')}, or search by shared words from now on: `ratchet memory reembed`",
        )
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(directory / _TOKENS))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return _Model(tokenizer, load_file(directory / _WEIGHTS)["embedding.weight"])


def _directory() -> Path | None:
    found = importlib.util.find_spec("wordllama")
    for place in (found.submodule_search_locations or ()) if found else ():
        if all((Path(place) / name).is_file() for name in (_WEIGHTS, _TOKENS)):
            return Path(place)
    return None


FILE_NAME = "memory.db"


def open_memory(settings: Settings, home: Path, embedder: Embedder | None = None) -> Memory:
    """The memory of this home, or of the server that the settings name; made when it is not there yet.

    A file keeps the embedder that it was made with until `reembed`. Raises `WrongEmbedder` when its vectors were made
    by another embedder than the given one, and `Missing` without the extra it needs.
    """
    if settings.store == "qdrant":
        from ratchet.memory.qdrant import open_server

        return open_server(settings.qdrant, embedder or best_embedder())
    from ratchet.memory.sqlite import SqliteMemory

    return SqliteMemory(home / FILE_NAME, embedder or _embedder_of(home / FILE_NAME))


def reembed(settings: Settings, home: Path, embedder: Embedder | None = None) -> int:
    """Re-embed every entry with this embedder, and say how many. Cut short, it can be started again."""
    embedder = embedder or best_embedder()
    if settings.store == "qdrant":
        from ratchet.memory.qdrant import reembed_server

        return reembed_server(settings.qdrant, embedder)
    from ratchet.memory.sqlite import reembed_file

    return reembed_file(home / FILE_NAME, embedder)


def best_embedder() -> Embedder:
    """By meaning if word vectors are installed, else by shared words."""
    return WordLlama() if WordLlama.is_installed() else SharedWords()


def search_advice() -> str | None:
    """What a person should know who searches by shared words alone; nothing where meaning is known."""
    if WordLlama.is_installed():
        return None
    # Only now: it reads what the installation says of itself.
    from ratchet.extras import install_line

    return (
        f"Found by shared words. To find by meaning, {install_line('memory')}, then `ratchet memory reembed`."
    )


def _embedder_of(path: Path) -> Embedder:
    from ratchet.memory.sqlite_file import made_with

    name = made_with(path)
    if name is None:
        return best_embedder()
    return SharedWords() if name == SharedWords.name else WordLlama()
