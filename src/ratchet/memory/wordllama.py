"""The embedder of the extra `memory`: static word vectors that come inside the package `wordllama`.

Its own loader looks in the wrong directory and then downloads; importing it sets up logging and an HTTP client. So
only its files are used: nothing here can reach the network.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ratchet.kernel import Missing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENS = "tokenizers/l2_supercat_tokenizer_config.json"
# The mean of many words says little more than that of the first few thousand, and a long text takes long to split.
_READ = 16_000


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
