"""The ways in which a person or a program names a version of an agent."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ratchet.agents.tags import read_tag, tagged
from ratchet.kernel import Conflict, Misuse, NotFound
from ratchet.kernel.semver import is_semver
from ratchet.ledger import Transaction
from ratchet.ledger.agents import (
    Agent,
    AgentVersion,
    get_version,
    list_versions,
    versions_numbered,
    versions_starting,
)

CURRENT = ("latest", "current")
_LEAST_DIGITS = 4
_HEX = re.compile(r"[0-9a-f]{1,64}", re.ASCII)
_FEW = 10


def find_version(tx: Transaction, agent: Agent, text: str) -> AgentVersion:
    """The version that `text` names: `latest` or `current`, a commit or its first digits, a number, or a tag.

    Raises `NotFound`, `Conflict` if several are meant, and `Misuse` for what can name none. Each says which there are.
    """
    wanted = text.strip().lower()
    if wanted in CURRENT:
        return _current(tx, agent)
    if is_semver(wanted):
        return _only(tx, agent, text, versions_numbered(tx, agent.id, wanted, limit=_FEW))
    if (tag := read_tag(wanted)) is not None:
        return _only(tx, agent, text, tagged(tx, agent.id, tag))
    if _HEX.fullmatch(wanted) is None:
        raise Misuse(
            f"{text[:80]!r} does not name a version",
            hint="use latest, the first digits of a commit, a number such as 0.1.0, or a tag such as v0.1.0",
        )
    if len(wanted) < _LEAST_DIGITS:
        raise Misuse(f"{text!r} is too short for a commit", hint=f"give at least {_LEAST_DIGITS} digits")
    return _only(tx, agent, text, versions_starting(tx, agent.id, wanted, limit=_FEW))


def _current(tx: Transaction, agent: Agent) -> AgentVersion:
    if agent.current is None:
        raise Conflict(
            f"the agent {agent.name} has no version yet: it is {agent.status}",
            hint=f"see how far it is with `ratchet agent show {agent.name}`",
        )
    return get_version(tx, agent.id, agent.current)


def _only(tx: Transaction, agent: Agent, text: str, found: Sequence[AgentVersion]) -> AgentVersion:
    if len(found) == 1:
        return found[0]
    if found:
        raise Conflict(
            f"{text[:80]!r} names {_many(found)} versions of {agent.name}",
            hint=f"name one by its commit: {_listed(found)}",
        )
    missing = NotFound("version", f"{text[:80]} of {agent.name}")
    missing.hint = f"there are {_listed(list_versions(tx, agent.id, limit=_FEW)) or 'none yet'}"
    raise missing


def _many(found: Sequence[AgentVersion]) -> str:
    return f"{_FEW} or more" if len(found) == _FEW else str(len(found))


def _listed(versions: Sequence[AgentVersion]) -> str:
    return ", ".join(f"{version.commit[:12]} ({version.version})" for version in versions)
