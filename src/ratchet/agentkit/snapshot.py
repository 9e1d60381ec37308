"""A state that may be stored, and the entry that tells of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ratchet.agentkit.difference import difference
from ratchet.agentkit.entry import Change, Entry, digest_of
from ratchet.agentkit.values import canonical, plain


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state, how long it is as text, and by what it is known."""

    state: dict[str, Any]
    size: int
    digest: str

    @classmethod
    def checked(cls, state: object) -> Snapshot:
        """A copy of `state`. Raises `StateInvalid` for what may not be stored."""
        return cls.of(plain(state))

    @classmethod
    def of(cls, state: dict[str, Any]) -> Snapshot:
        text = canonical(state)
        return cls(state, len(text), digest_of(text))

    def entry(self, change: Change, last: Entry | None, before: dict[str, Any] | None) -> Entry:
        """What the history is to hold; `before` is the state that `last` tells of.

        Only the difference, as long as all differences since the last whole state are shorter than a whole one: so
        to read any state is at most twice the work of reading it whole.
        """
        whole = Entry(change=change, digest=self.digest, state=self.state)
        if last is None or before is None:
            return whole
        steps = difference(before, self.state)
        weight = last.weight + len(json.dumps(steps))
        if weight >= self.size:
            return whole
        since = last.change.number if last.state is not None else last.since
        return Entry(change=change, digest=self.digest, since=since, weight=weight, steps=steps)
