"""The seam to a forge: what a protocol needs of GitHub or GitLab, and the events they report, in one form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeVar


class ForgeEventKind(StrEnum):
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
class ForgeJob:
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
    kind: ForgeEventKind
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
    jobs: tuple[ForgeJob, ...] = ()
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
class ForgeCheck:
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

    async def checks(self, commit: str) -> tuple[ForgeCheck, ...]:
        """What the forge knows about a commit now; at most a few hundred."""
        ...


_PASSED = ("success", "passed", "ok")
_FAILED = ("failure", "failed", "error", "cancelled", "canceled", "timed_out", "action_required")
_PENDING = ("pending", "queued", "requested", "in_progress", "waiting", "running", "created", "scheduled")
_BOTH = {
    **dict.fromkeys(_PASSED, CheckState.PASSED),
    **dict.fromkeys(_FAILED, CheckState.FAILED),
    **dict.fromkeys(_PENDING, CheckState.PENDING),
    "skipped": CheckState.NEUTRAL,
}
_GITHUB = {
    **_BOTH,
    # GitHub itself takes it for a success.
    "neutral": CheckState.PASSED,
    "startup_failure": CheckState.FAILED,
    # It was never finished and nobody will.
    "stale": CheckState.FAILED,
    "expected": CheckState.PENDING,
    # Without a conclusion that says nothing yet.
    "completed": CheckState.PENDING,
}
_GITLAB = {
    **_BOTH,
    "preparing": CheckState.PENDING,
    "waiting_for_resource": CheckState.PENDING,
    "waiting_for_callback": CheckState.PENDING,
    "canceling": CheckState.PENDING,
    # Somebody has to press a button first.
    "manual": CheckState.PENDING,
}
CANCELLED = frozenset({"cancelled", "canceled"})


def github_state(word: str | None) -> CheckState | None:
    """Nothing for a word that is not known."""
    return None if word is None else _GITHUB.get(word.lower())


def gitlab_state(word: str | None, *, may_fail: bool = False) -> CheckState | None:
    """A job that may fail has not failed its pipeline."""
    state = None if word is None else _GITLAB.get(word.lower())
    return CheckState.NEUTRAL if state is CheckState.FAILED and may_fail else state


Value = TypeVar("Value")
_MOST_ITEMS = 500
_LARGEST = 2**63 - 1
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_WRITTEN = ("%Y-%m-%d %H:%M:%S %z", "%Y-%m-%d %H:%M:%S UTC")


def part(value: Any) -> Mapping[str, Any]:
    """An object; an empty one in place of anything else."""
    return value if isinstance(value, dict) else _NOTHING


def items(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list, the first few hundred."""
    return [each for each in value[:_MOST_ITEMS] if isinstance(each, dict)] if isinstance(value, list) else []


def text(value: Any, most: int = 500) -> str | None:
    """A text that says something, cut to `most` characters."""
    return value.strip()[:most] or None if isinstance(value, str) else None


def tail(value: Any, most: int = 8000) -> str | None:
    """The end of a text."""
    return value.rstrip()[-most:] or None if isinstance(value, str) else None


def number(value: Any) -> int | None:
    """A whole number that can be that of something."""
    return value if type(value) is int and 0 < value <= _LARGEST else None


def link(value: Any) -> str | None:
    """An address that a browser may be sent to."""
    found = text(value, 2000)
    return found if found is not None and found.lower().startswith(("https://", "http://")) else None


def commit(value: Any) -> str | None:
    """The full name of a commit. The one of zeros stands for none."""
    found = value.lower() if isinstance(value, str) and len(value) <= 64 else ""
    return found if _COMMIT.fullmatch(found) and found.strip("0") else None


def moment(value: Any) -> int | None:
    """A time in whole milliseconds, from any of the ways in which forges write it."""
    found = text(value, 64)
    if found is None:
        return None
    for read in (datetime.fromisoformat, *(_reader(form) for form in _WRITTEN)):
        try:
            at = read(found)
            whole = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        except (ValueError, OverflowError):
            continue
        return whole if 0 < whole <= _LARGEST else None
    return None


def _reader(form: str) -> Any:
    return lambda written: datetime.strptime(written, form)  # noqa: DTZ007 - the caller takes it for UTC


def first(*values: Value | None) -> Value | None:
    """The first of several that is there."""
    return next((each for each in values if each is not None), None)
