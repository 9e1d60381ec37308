"""What the next author of a step reads about the last attempt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratchet.kernel import NotFound, Verdict
from ratchet.ledger import ArtifactStore

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
