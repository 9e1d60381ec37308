"""The tags of versions, in the agent's repository and as names for people.

Two versions may have the same number. The first of them has the tag of the number, and that of every other one says its
commit, too. So a tag always names one version.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from ratchet.kernel.semver import is_semver
from ratchet.ledger import Transaction
from ratchet.ledger.agents import AgentVersion, first_numbered, versions_starting

_DIGITS = 12
_TAG = re.compile(r"v([0-9.]+)(?:-([0-9a-f]{4,64}))?", re.ASCII)


class Tag(NamedTuple):
    """`v0.1.0`, or `v0.1.0-4f2a91c07be2`."""

    number: str
    digits: str | None

    def __str__(self) -> str:
        return f"v{self.number}" if self.digits is None else f"v{self.number}-{self.digits}"


def read_tag(text: str) -> Tag | None:
    """The tag that a text is; `None` if it is none."""
    found = _TAG.fullmatch(text)
    return None if found is None or not is_semver(found[1]) else Tag(found[1], found[2])


def tag_for(tx: Transaction, agent_id: int, number: str, commit: str) -> Tag:
    """The tag of a version that is, or is about to be, recorded."""
    first = first_numbered(tx, agent_id, [number]).get(number)
    return _tag(number, commit, first)


def tags_of(tx: Transaction, agent_id: int, versions: Collection[AgentVersion]) -> dict[str, str]:
    """The tags of these versions of one agent, by their commits."""
    firsts = first_numbered(tx, agent_id, {version.version for version in versions})
    return {
        version.commit: str(_tag(version.version, version.commit, firsts.get(version.version)))
        for version in versions
    }


def tagged(tx: Transaction, agent_id: int, tag: Tag) -> list[AgentVersion]:
    """The versions that a tag names: one, or none; several only if it has too few digits."""
    if tag.digits is None:
        return list(first_numbered(tx, agent_id, [tag.number]).values())
    found = versions_starting(tx, agent_id, tag.digits)
    return [version for version in found if version.version == tag.number]


def _tag(number: str, commit: str, first: AgentVersion | None) -> Tag:
    is_first = first is None or first.commit == commit
    return Tag(number, None if is_first else commit[:_DIGITS])
