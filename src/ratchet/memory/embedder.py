"""What turns texts into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Embedder(Protocol):
    """Gives texts of like meaning vectors that point in like directions."""

    @property
    def name(self) -> str:
        """Names the model: vectors of two names are never compared. Known without loading it."""

    @property
    def dimension(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row for each text, of length 1; zeros for a text that says nothing. Equal texts get equal rows."""
