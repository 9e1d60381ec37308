"""Who asks, and what of the projects they may see."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from ratchet.kernel import RatchetError
from ratchet.ledger import Transaction
from ratchet.ledger.owners import Owner, project_of_token, tokens_of

HEADER = "X-Project-Token"


class ProjectTokenNeeded(RatchetError):
    """The project has a token of its own, and it was not shown."""

    http_status = 401


class Forbidden(RatchetError):
    """The token that was shown does not open this."""

    http_status = 403


@dataclass(frozen=True, slots=True)
class Caller:
    """The operator, who holds the server's token, or somebody who holds only the token of one project.

    `shown` is the hash of the project's token that the operator sends along. `opened` are those that somebody has shown
    before, one after the other: they open their projects and close no other.
    """

    project_id: int | None = None
    shown: str | None = None
    opened: frozenset[str] = frozenset()

    @property
    def is_operator(self) -> bool:
        return self.project_id is None

    @property
    def tokens(self) -> frozenset[str]:
        """The hashes of all tokens of projects that this one has shown."""
        return self.opened if self.shown is None else self.opened | {self.shown}

    def enter(self, tx: Transaction, owner: Owner) -> None:
        """Pass if this is one that the caller may use. Raises `Forbidden` or `ProjectTokenNeeded`."""
        if self.project_id is not None:
            if self.project_id != owner.project_id:
                raise Forbidden(f"this belongs to another than project {self.project_id}")
            return
        if owner.token_hash in self.opened:
            return
        if owner.project_id is None or (self.shown is None and owner.token_hash is None):
            return
        if self.shown is not None:
            if owner.token_hash is not None and hmac.compare_digest(self.shown, owner.token_hash):
                return
            if project_of_token(tx, self.shown) is not None:
                raise Forbidden(f"the {HEADER} is that of another project")
        if owner.token_hash is not None:
            raise ProjectTokenNeeded(
                f"project {owner.project_id} has a token of its own, which is missing or wrong",
                hint=f"send it as {HEADER}, or alone as the bearer token",
            )

    def hidden(self, tx: Transaction, project_ids: Iterable[int | None]) -> frozenset[int | None]:
        """Those of the projects, or nobody's, whose things must not be in a list that goes over all of them."""
        named = frozenset(project_ids)
        if self.project_id is not None:
            return named - {self.project_id}
        guarded = tokens_of(tx, [number for number in named if number is not None])
        return frozenset(number for number, token in guarded.items() if token not in self.tokens)


# Of requests that need no token: no project has this number.
NOBODY = Caller(project_id=0)


def hash_of(token: bytes) -> str:
    """What is kept of a project's token."""
    return hashlib.sha256(token).hexdigest()
