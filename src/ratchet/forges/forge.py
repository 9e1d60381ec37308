"""The seam to a forge: what a protocol needs of GitHub or GitLab, and the events they report, in one form."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol


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


Provider = Literal["github", "gitlab"]


class CheckState(StrEnum):
    """What a check has come to. `neutral` is one that was not needed, such as a skipped job."""

    PENDING = "pending"
    PASSED = "passed"
    FAILED = "failed"
    NEUTRAL = "neutral"


class PullRequestState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request, or merge request, as the forge has it."""

    provider: Provider
    number: int
    url: str
    state: PullRequestState
    draft: bool
    branch: str
    base: str
    title: str

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "state": str(self.state)}


@dataclass(frozen=True, slots=True)
class Check:
    """What one check says about a commit."""

    name: str
    state: CheckState
    url: str | None


class Forge(Protocol):
    """One repository on a forge. Everything raises `ForgeError`."""

    async def find_pull_request(self, branch: str) -> PullRequest | None:
        """The open one of a branch, else its newest that was merged or closed."""
        ...

    async def open_pull_request(
        self, *, branch: str, base: str, title: str, body: str, draft: bool = True
    ) -> PullRequest:
        """Open one, unless the branch has one, in whatever state: then that one, unchanged.

        The draft becomes a plain one where the forge does not have drafts.
        """
        ...

    async def update_pull_request(
        self, number: int, *, title: str | None = None, body: str | None = None
    ) -> PullRequest:
        """Change its words. A draft stays one."""
        ...

    async def mark_ready(self, number: int) -> PullRequest:
        """It is a draft no longer; fine if it was none."""
        ...

    async def checks(self, commit: str) -> tuple[Check, ...]:
        """What the forge knows about a commit now; at most a few hundred."""
        ...
