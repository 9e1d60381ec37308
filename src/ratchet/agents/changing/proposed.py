"""What a session proposed for an agent, as the checkpoint of its attempt has it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ratchet.agents.changing.taking import Decision
from ratchet.loop import PROPOSED, OpenAttempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """What a session came to. `commit` holds the files that it left, the states lie in the artifact store.

    `base_state` is the live state as the session was shown it; the first version has none. `seen` is the number of a
    change that is part of it.
    """

    decision: Decision
    bump: str | None
    summary: str
    commit: str | None
    base_state: str | None
    staged_state: str
    simulated: bool
    seen: int = 0

    @classmethod
    def of(cls, opened: OpenAttempt) -> Proposed:
        data = opened.finished[PROPOSED]
        known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        return cls(**{**known, "decision": Decision(data["decision"])})
