"""What the author of a step is told. What every step shares comes first, so that engines can cache it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import PurePosixPath

from ratchet.kernel import NotFound
from ratchet.ledger.protocol_steps import ProtocolStep
from ratchet.protocols.spec.hashing import prompt_version
from ratchet.protocols.stream import Blocked, Stream
from ratchet.workspaces import Repository

_LONGEST = 60_000
_RULES = """\
You carry out one step of a planned change. You work in a checkout of the branch, and what you leave in it is what
counts; somebody else commits it, so do not use git to commit, push or switch branches.

- Do what the step asks for, completely, and nothing beyond it.
- The files plan.md, 00-setup.md and the step files under {root}/ are a contract: never change them. You may add what
  the next step should know to {root}/context.md.
- Keep to the style of the repository. Add or adapt tests for what you change.
- Leave no scratch files behind, and put no secrets into files.
- Your change is then checked by {checks} and read by a reviewer who sees only the change. It is kept only if both pass.
- If the step cannot be done as it is written, say so plainly at the end instead of pretending.
"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text for the author, and which version of the step's own file it was made from."""

    system: str
    text: str
    version: str


def make_prompt(stream: Stream, step: ProtocolStep, commit: str) -> Prompt:
    """Raises `Blocked` when the step's prompt is not in the commit."""
    repository = stream.clone.repository
    own = read_prompt(repository, commit, step, stream.root)
    names = [each["name"] for each in (stream.project.facts or {}).get("checks") or []]
    rules = _RULES.format(root=stream.root, checks=", ".join(names) or "the gates of this repository")
    parts = [f"# Protocol {stream.protocol.name}", stream.protocol.description or ""]
    for file in ("plan.md", "context.md"):
        found = _read(repository, commit, f"{stream.root}/{file}")
        if found:
            parts.append(_quoted(file, found))
    parts.append(f"# Your step: {step.name}\n\n{own.decode('utf-8', 'replace')}")
    feedback = (step.runtime_state or {}).get("feedback")
    if feedback:
        parts.append(
            f"# What was wrong with the last attempt\n\n{feedback}\n\nMend this. Keep what was right."
        )
    return Prompt(rules, "\n\n".join(part for part in parts if part), prompt_version(own))


def read_prompt(repository: Repository, commit: str, step: ProtocolStep, root: str) -> bytes:
    """The file that the step's spec names: in the protocol's folder, else in the repository."""
    reference = (step.spec or {}).get("prompt_ref") or f"{step.name}.md"
    for path in (str(PurePosixPath(root, reference)), reference):
        found = _read_bytes(repository, commit, path)
        if found is not None:
            return found
    raise Blocked(
        f"the prompt {reference} of step {step.name} is not on the branch",
        event="spec_validation_error",
        hint=f"commit it under {root}/, or mend prompt_ref in the spec",
    )


def _quoted(name: str, text: str) -> str:
    """Somebody's text between marks that it cannot hold itself."""
    mark = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    return f"<<<{mark} {name}\n{text[:_LONGEST]}\n{mark}>>>"


def _read(repository: Repository, commit: str, path: str) -> str | None:
    found = _read_bytes(repository, commit, path)
    return None if found is None else found.decode("utf-8", "replace")


def _read_bytes(repository: Repository, commit: str, path: str) -> bytes | None:
    try:
        return repository.read_file(commit, path)
    except NotFound:
        return None
