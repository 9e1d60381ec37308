"""What two versions of an agent differ in: their numbers, their tools, their files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.agents.place import place_of
from ratchet.agents.references import find_version
from ratchet.agents.signatures import compare_tools, shapes_of
from ratchet.agents.views._versions import version_record
from ratchet.kernel import Conflict
from ratchet.ledger.agents import Agent, AgentVersion, get_agent, get_version
from ratchet.workspaces import Repository

if TYPE_CHECKING:
    from ratchet.ledger import Transaction

MOST_DIFF = 1_000_000
_MOST_FILES = 1_000


@dataclass(frozen=True, slots=True)
class Compared:
    """Two versions of an agent, found in the ledger; `comparison` reads the rest from its repository."""

    agent: Agent
    old: AgentVersion
    new: AgentVersion


def find_compared(tx: Transaction, name: str, old: str | None = None, new: str | None = None) -> Compared:
    """The versions to compare. `new` is the current one if it is not named, and `old` what `new` was made from.

    Raises `NotFound`, and `Conflict` for a first version, which was made from nothing.
    """
    agent = get_agent(tx, name)
    latter = find_version(tx, agent, "current" if new is None else new)
    former = _parent(tx, agent, latter) if old is None else find_version(tx, agent, old)
    return Compared(agent, former, latter)


def comparison(home: Path, compared: Compared) -> dict[str, Any]:
    """Both versions, what became of the tools, and the difference of the files as a patch.

    A very long patch is cut, which `is_cut` says. Bytes that are no text are marked.
    """
    old, new = compared.old, compared.new
    with Repository.open(place_of(home, compared.agent.name).repository) as repository:
        files = [change.path for change in repository.changes(old.commit, new.commit)]
        patch = repository.diff(old.commit, new.commit)
    text = patch.encode(errors="surrogateescape").decode(errors="replace")
    return {
        "agent": compared.agent.name,
        "old": version_record(old, compared.agent),
        "new": version_record(new, compared.agent),
        "tools": _tool_changes(old, new),
        "files": files[:_MOST_FILES],
        "diff": text[:MOST_DIFF],
        "is_cut": len(text) > MOST_DIFF or len(files) > _MOST_FILES,
    }


def _parent(tx: Transaction, agent: Agent, version: AgentVersion) -> AgentVersion:
    if version.parent is None:
        raise Conflict(
            f"version {version.version} of {agent.name} is a first one, made from nothing",
            hint=f"name two versions; `ratchet agent versions {agent.name}` lists them",
        )
    return get_version(tx, agent.id, version.parent)


def _tool_changes(old: AgentVersion, new: AgentVersion) -> dict[str, Any]:
    changes = compare_tools(shapes_of(old.tools), shapes_of(new.tools))
    return {**asdict(changes), "least": str(changes.least)}
