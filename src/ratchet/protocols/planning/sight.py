"""What whoever plans is shown of the protocol and of the repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.kernel import NotFound
from ratchet.ledger import Transaction
from ratchet.ledger.clarifications import Clarification, list_clarifications
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol
from ratchet.projects.discovery import read_facts
from ratchet.protocols.naming import require_number
from ratchet.workspaces import Repository

GUIDANCE = "prompts/protocol-new.prompt.md"
_MOST_FILES = 1500
_MOST_CHARACTERS = 40_000
_MOST_ANSWERS = 50
_MOST_QUESTIONS = 500


@dataclass(frozen=True, slots=True)
class Sight:
    """`files` are those nearest to the top, and `more_files` how many others there are.

    `guidance` is what the repository itself says about plans, if it does.
    """

    name: str
    number: int
    folder: str
    description: str | None
    facts: Mapping[str, Any]
    checks: Sequence[Mapping[str, Any]]
    files: Sequence[str]
    more_files: int
    guidance: str | None
    answers: Sequence[Mapping[str, Any]]


def look(tx: Transaction, protocol: Protocol, project: Project, repository: Repository, commit: str) -> Sight:
    """The repository as it is at `commit`, and what people said."""
    facts = read_facts(project.facts)
    files = repository.list_files(commit)
    shown = _nearest(files)
    return Sight(
        name=protocol.name,
        number=require_number(protocol.name),
        folder=f".protocols/{protocol.name}",
        description=protocol.description,
        facts={
            "stack": list(facts.stack),
            "ci": project.ci_provider or facts.ci_provider,
            "notes": list(facts.notes),
        },
        checks=[
            {"name": check.name, "kind": check.kind, "command": list(check.argv)} for check in facts.checks
        ],
        files=shown,
        more_files=len(files) - len(shown),
        guidance=_guidance(repository, commit),
        answers=_answers(tx, protocol),
    )


def _nearest(paths: Mapping[str, Any]) -> list[str]:
    """As many paths as fit, those with the fewest directories first."""
    shown: list[str] = []
    room = _MOST_CHARACTERS
    for path in sorted(paths, key=lambda path: (path.count("/"), path)):
        room -= len(path) + 1
        if room < 0 or len(shown) == _MOST_FILES:
            break
        shown.append(path)
    return sorted(shown)


def _guidance(repository: Repository, commit: str) -> str | None:
    try:
        return repository.read_file(commit, GUIDANCE).decode("utf-8", "replace")
    except NotFound:
        return None


def _answers(tx: Transaction, protocol: Protocol) -> list[dict[str, Any]]:
    """What people answered about the project or about this protocol, the newest first."""
    own = list_clarifications(tx, run_id=protocol.run_id, limit=_MOST_QUESTIONS)
    of_project = list_clarifications(tx, project_id=protocol.project_id, limit=_MOST_QUESTIONS)
    asked = [*own, *(each for each in of_project if each.run_id is None)]
    answered = sorted((each for each in asked if not each.open), key=_when, reverse=True)
    return [{"question": each.question, "answer": each.answer} for each in answered[:_MOST_ANSWERS]]


def _when(clarification: Clarification) -> int:
    return clarification.answered_at or 0
