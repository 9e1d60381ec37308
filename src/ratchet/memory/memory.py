"""What a memory holds, and what every memory and every embedder can do, wherever it is kept."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

from ratchet.kernel import Misuse, RatchetError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class MemoryFault(RatchetError):
    """The memory cannot be used as it is."""

    http_status = 503


class MemoryCorrupt(MemoryFault):
    """The memory is damaged, or something else is in its place."""


class MemoryTooNew(MemoryFault):
    """The memory was written by a newer Ratchet."""


class MemoryUnavailable(MemoryFault):
    """The memory cannot be reached, is read-only, or its disk is full."""


class WrongEmbedder(MemoryFault):
    """The vectors of the memory were made by another embedder, so a new one cannot be compared with them."""

    def __init__(self, place: str, made_by: str, wanted: str) -> None:
        super().__init__(
            f"the vectors of {place} were made by {made_by}, not by {wanted}",
            hint="`ratchet memory reembed` re-embeds them; the texts stay as they are",
        )
        self.made_by = made_by
        self.wanted = wanted


LONGEST_TEXT = 1_000_000
_LONGEST_NAME = 200
_MOST_TAGS = 100
_MOST_FOUND = 10_000
_KEYS = uuid.UUID("7f0c3c55-9d0e-4f0a-a3ee-3d1c54b8a0f7")


@dataclass(frozen=True, slots=True)
class MemoryEntry:
    id: str
    kind: str
    text: str
    tags: frozenset[str]
    data: dict[str, Any]
    scope: str | None
    created_at: int


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry and how near it is. Compare likenesses only within one answer."""

    entry: MemoryEntry
    likeness: float


class Where(TypedDict, total=False):
    """Which entries are meant. What is absent or `None` does not matter; of `tags` an entry must have all."""

    id: str | None
    kind: str | None
    tags: Collection[str] | None
    scope: str | None


@dataclass(frozen=True, slots=True)
class MemoryFilter:
    """A `Where` that has been checked."""

    id: str | None = None
    kind: str | None = None
    tags: frozenset[str] = frozenset()
    scope: str | None = None

    @classmethod
    def of(cls, where: Where) -> MemoryFilter:
        unknown = where.keys() - Where.__annotations__.keys()
        if unknown:
            raise Misuse(
                f"entries have no {min(unknown)!r} to be chosen by; they have id, kind, tags and scope"
            )
        return cls(
            id=_id(where.get("id")),
            kind=_optional("kind", where.get("kind")),
            tags=_tags(where.get("tags") or ()),
            scope=_optional("scope", where.get("scope")),
        )

    @property
    def empty(self) -> bool:
        return self == MemoryFilter()


@dataclass(frozen=True, slots=True)
class MemoryDraft:
    """An entry that has been checked and is about to be stored. `data` is its JSON."""

    id: str
    kind: str
    text: str
    tags: frozenset[str]
    data: str
    scope: str | None

    @classmethod
    def of(
        cls,
        text: str,
        *,
        kind: str,
        tags: Collection[str],
        data: Mapping[str, Any] | None,
        scope: str | None,
        key: str | None,
    ) -> MemoryDraft:
        if not text.strip():
            raise Misuse("there is nothing to remember: the text is empty")
        _check_length("the text", text, LONGEST_TEXT)
        return cls(
            id=str(uuid.uuid4() if key is None else uuid.uuid5(_KEYS, _name("key", key))),
            kind=_name("kind", kind),
            text=clean(text),
            tags=_tags(tags),
            data=_json(data or {}),
            scope=_optional("scope", scope),
        )


def clean(text: str) -> str:
    """`text` without halves of surrogate pairs: no file and no server can hold them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def check_limit(limit: int) -> int:
    if not 1 <= limit <= _MOST_FOUND:
        raise Misuse(f"the limit is {limit}; it must be from 1 to {_MOST_FOUND}")
    return limit


def _tags(tags: Collection[str]) -> frozenset[str]:
    if isinstance(tags, str):
        raise Misuse(f"the tags are the one text {tags[:50]!r}; give a collection of texts")
    if len(tags) > _MOST_TAGS:
        raise Misuse(f"{len(tags)} tags are too many; an entry has at most {_MOST_TAGS}")
    return frozenset(_name("tag", tag) for tag in tags)


def _id(text: str | None) -> str | None:
    try:
        return None if text is None else str(uuid.UUID(text))
    except (ValueError, AttributeError):
        raise Misuse(f"{text!r} is not the id of an entry", hint="`ratchet memory list` shows them") from None


def _optional(what: str, text: str | None) -> str | None:
    return None if text is None else _name(what, text)


def _name(what: str, text: str) -> str:
    if not isinstance(text, str):
        raise Misuse(f"the {what} is {text!r}; it must be a text")
    if not text.strip():
        raise Misuse(f"the {what} is empty")
    _check_length(f"the {what}", text, _LONGEST_NAME)
    return clean(text)


def _check_length(what: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise Misuse(
            f"{what} has {len(text):,} characters; at most {longest:,} are remembered",
            hint="keep what is long as an artifact, and remember what it is about",
        )


def _json(data: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(dict(data), allow_nan=False, separators=(",", ":"), sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise Misuse(
            f"the data of an entry cannot be stored as JSON: {error}",
            hint="use only null, booleans, finite numbers, text, lists and objects with text keys",
        ) from error
    _check_length("the data", text, LONGEST_TEXT)
    return text


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

    def find(self, meaning: str, *, limit: int = 10, **where: Unpack[Where]) -> list[FoundEntry]:
        """The entries whose text means most nearly the same, nearest first; nothing for a blank text."""

    def words(self, query: str, *, limit: int = 10, **where: Unpack[Where]) -> list[FoundEntry]:
        """The entries that have any of these words, best first: for names and identifiers.

        Words are compared without case and accents. Rare words count for more; a word that thousands of entries have
        is left out beside rarer ones. Nothing in `query` is syntax.
        """

    def entries(self, *, limit: int = 100, **where: Unpack[Where]) -> list[MemoryEntry]:
        """The newest entries, newest first."""

    def delete(self, **where: Unpack[Where]) -> int:
        """Forget every entry that fits, and say how many. Without any condition it is `Misuse`."""

    def close(self) -> None:
        """Let go of the place. Closing again does nothing; any other use is `Misuse`."""
