"""The prompt of a step: rules, plan, step, and the feedback on the last attempt.

What every step shares comes first, so that engines can cache it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ratchet.kernel import NotFound, Verdict
from ratchet.ledger import ArtifactStore
from ratchet.ledger.protocols import ProtocolStep
from ratchet.protocols.spec.step_spec import prompt_version
from ratchet.protocols.stream import ProtocolBlocked, Stream
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
    """Raises `ProtocolBlocked` when the step's prompt is not in the commit."""
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
    raise ProtocolBlocked(
        f"the prompt {reference} of step {step.name} is not on the branch",
        event="spec_validation_error",
        hint=f"commit it under {root}/, or fix prompt_ref in the spec",
    )


def _quoted(name: str, text: str) -> str:
    """Foreign text between marks that it cannot hold itself."""
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


LONGEST = 12_000
_TAIL = 3000
_FINDINGS = 40


@dataclass(frozen=True, slots=True)
class CiFailure:
    """A check of the forge that failed: its job and step, and the end of its log, as far as they are known."""

    name: str
    job: str | None = None
    step: str | None = None
    log: str = ""
    url: str | None = None


def feedback(
    artifacts: ArtifactStore, verdict: Verdict | None, reason: str, ci: Sequence[CiFailure] = ()
) -> str:
    """A text of bounded length: why an attempt was not kept, each finding, and the ends of logs.

    What others wrote stands between marks that it cannot hold, as data.
    """
    parts = [reason.strip(), *_gates(_report(artifacts, verdict)), *(_ci(each) for each in ci)]
    return _cut("\n\n".join(part for part in parts if part))


def _report(artifacts: ArtifactStore, verdict: Verdict | None) -> Mapping[str, Any]:
    """The document that the verdict stands on; empty where there is none, or it is gone."""
    if verdict is None or verdict.report is None:
        return {}
    try:
        report = json.loads(artifacts.read(verdict.report))
    except (NotFound, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def _gates(report: Mapping[str, Any]) -> Iterator[str]:
    for part in report.get("parts") or ():
        findings = [_finding_line(each) for each in part["findings"]]
        if findings:
            more = [f"- and {len(findings) - _FINDINGS} more"] if len(findings) > _FINDINGS else []
            yield "\n".join([f"Findings of {part['name']}:", *findings[:_FINDINGS], *more])
        failed = {each["rule"].removeprefix("check.") for each in part["findings"] if "rule" in each}
        for name, output in part["outputs"].items():
            if name in failed and output:
                yield _quoted_end(f"the end of what {name} printed", output)


def _finding_line(finding: Mapping[str, Any]) -> str:
    where = ":".join(str(each) for each in (finding["file"], finding["line"]) if each is not None)
    message = " ".join(str(finding["message"]).split())[:1000]
    return f"- {finding['severity']}: {f'{where}: ' if where else ''}{message}"


def _ci(failure: CiFailure) -> str:
    where = ", ".join(
        f"{word} {value}" for word, value in (("job", failure.job), ("step", failure.step)) if value
    )
    title = f"CI: {failure.name} failed{f' in {where}' if where else ''}{f' ({failure.url})' if failure.url else ''}"
    return f"{title}\n{_quoted_end('the end of its log', failure.log)}" if failure.log.strip() else title


def _quoted_end(name: str, text: str) -> str:
    end = text.strip()[-_TAIL:]
    mark = hashlib.sha256(end.encode("utf-8", "replace")).hexdigest()[:12]
    return f"<<<{mark} {name}\n{end}\n{mark}>>>"


def _cut(text: str) -> str:
    note = "\n… (cut)"
    return text if len(text) <= LONGEST else text[: LONGEST - len(note)] + note
