"""What a forge says happened, in one form for all forges."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ratchet.forges.forge import CheckState, Provider


class EventKind(StrEnum):
    CHECK = "check"
    PULL_REQUEST = "pull_request"
    PUSH = "push"
    PING = "ping"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Where a check failed, as far as the forge tells: for whoever tries again."""

    job: str | None = None
    step: str | None = None
    log_tail: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One of the checks that a delivery about a whole pipeline lists."""

    name: str
    state: CheckState
    outcome: str
    at: int | None
    trouble: Trouble = Trouble()


@dataclass(frozen=True, slots=True)
class ForgeEvent:
    """One delivery of a webhook. Whatever the forge did not tell is `None`."""

    provider: Provider
    # The id under which it is known, so that the second time changes nothing.
    delivery: str
    # The forge's own word for it: `workflow_run`, `pipeline`.
    name: str
    kind: EventKind
    # The address of the repository, as the forge writes it.
    repository: str | None = None
    # Branches that it is about, as the forge writes them; a commit may be on several.
    branches: tuple[str, ...] = ()
    commit: str | None = None
    check: str | None = None
    state: CheckState | None = None
    # The forge's own word for the state.
    outcome: str | None = None
    url: str | None = None
    trouble: Trouble = Trouble()
    jobs: tuple[Job, ...] = ()
    pull_request: int | None = None
    draft: bool = False
    merged: bool = False
    closed: bool = False
    # By the forge's clock, in whole milliseconds.
    at: int | None = None

    @property
    def branch(self) -> str | None:
        return self.branches[0] if self.branches else None
