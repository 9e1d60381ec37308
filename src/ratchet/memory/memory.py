"""What every memory and every embedder can do, wherever it is kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from ratchet.memory.entry import Entry, Found, Where

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


class Memory(Protocol):
    """Entries that are found again. Any thread may use it, and several processes may use one place at once.

    Raises `Misuse` for what cannot be meant and `MemoryFault` when the place fails. Entries that are equally good come
    in the order in which they were stored.
    """

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
        """Keep `text` and return the id of its entry. When it returns, the entry is safe and can be found.

        A `key` makes it safe to repeat: the entry that was stored with the same key is replaced, and keeps its id and
        its time.
        """

    def find(self, meaning: str, *, limit: int = 10, **where: Unpack[Where]) -> list[Found]:
        """The entries whose text means most nearly the same, nearest first; nothing for a blank text."""

    def words(self, query: str, *, limit: int = 10, **where: Unpack[Where]) -> list[Found]:
        """The entries that have any of these words, best first: for names and identifiers.

        Words are compared without case and accents. Rare words count for more; a word that thousands of entries have
        is left out beside rarer ones. Nothing in `query` is syntax.
        """

    def entries(self, *, limit: int = 100, **where: Unpack[Where]) -> list[Entry]:
        """The newest entries, newest first."""

    def delete(self, **where: Unpack[Where]) -> int:
        """Forget every entry that fits, and say how many. Without any condition it is `Misuse`."""

    def close(self) -> None:
        """Let go of the place. Closing again does nothing; any other use is `Misuse`."""
