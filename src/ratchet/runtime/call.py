"""The call of an operation: who asks, and on which ledger."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from ratchet.config import Loaded, Settings
    from ratchet.ledger import Ledger, Transaction
    from ratchet.runtime.runtime import Runtime


class Call(Protocol):
    """Every face brings its own. `actor` and `request_id` go into the record of what is done."""

    @property
    def ledger(self) -> Ledger: ...

    @property
    def runtime(self) -> Runtime:
        """With the kinds of every flow. What only reads does without: it takes long to load."""
        ...

    @property
    def loaded(self) -> Loaded: ...

    @property
    def home(self) -> Path: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def kept(self) -> dict[str, Any]:
        """What one call leaves for the next one of the same face."""
        ...

    @property
    def actor(self) -> str: ...

    @property
    def person(self) -> str:
        """Who decides where a person does, unless a name is given."""
        ...

    @property
    def request_id(self) -> str | None: ...

    @property
    def is_budgeted(self) -> bool:
        """Whether the runs that the caller may start are bounded for each day, as those of all callers."""
        ...

    @property
    def project_id(self) -> int | None:
        """The only project whose things the caller may see; None for one who may see all."""
        ...

    def read(self) -> AbstractContextManager[Transaction]: ...

    def write(self) -> AbstractContextManager[Transaction]: ...

    def hidden(self, tx: Transaction, project_ids: Iterable[int | None]) -> frozenset[int | None]:
        """Those of the projects whose things must not be in a list that goes over all of them."""
        ...

    def serving(self, agent: str) -> list[Any] | None:
        """What this process serves of an agent, version by version; None where another process serves agents."""
        ...
