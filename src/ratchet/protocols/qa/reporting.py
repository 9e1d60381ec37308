"""The report of a verdict: one document for programs, one for people. Neither goes into the repository."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ratchet.judges import Judged, Report
from ratchet.protocols.qa.reviewer import Independence
from ratchet.protocols.spec.step_spec import QaPolicy

SKIPPED = "QA was skipped by policy"
MARKDOWN = "quality-report.md"


@dataclass(frozen=True, slots=True)
class About:
    """Whose change was judged, how, and by whom."""

    step: str
    policy: QaPolicy
    author: str
    reviewer: str | None = None
    model: str | None = None
    independence: Independence | None = None
    prompt_versions: dict[str, str] = field(default_factory=dict)


def reported(judged: Judged, about: About, commit: str) -> Judged:
    """What several judges said as one, with its report in place of the plain list of verdicts."""
    own, *others = judged.reports
    verdict = judged.verdict
    if verdict.passed and about.policy is QaPolicy.SKIP:
        verdict = replace(verdict, reason=f"{verdict.reason}; {SKIPPED}")
    if about.independence is Independence.NONE:
        # At the beginning: what is shown of a reason may be its beginning only.
        verdict = replace(verdict, reason=f"({about.independence}) {verdict.reason}")
    contents = {report.sha256: report.content for report in others}
    document = {
        "step": about.step,
        "commit": commit,
        "policy": about.policy,
        "author": about.author,
        "reviewer": about.reviewer,
        "model": about.model,
        "independence": about.independence,
        "prompt_versions": about.prompt_versions,
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "parts": [_part(each, contents) for each in json.loads(own.content)],
    }
    whole = Report(own.name, json.dumps(document).encode())
    page = Report(MARKDOWN, render(document).encode("utf-8", "replace"), "text/markdown")
    verdict = replace(verdict, report=whole.sha256)
    return replace(judged, verdict=verdict, reports=(whole, page, *others))


def render(document: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    return "\n".join(_lines(document)) + "\n"


def _part(verdict: Mapping[str, Any], contents: Mapping[str, bytes]) -> dict[str, Any]:
    """One gate's verdict with what its own report says."""
    content = contents.get(verdict["report"] or "")
    report = {} if content is None else json.loads(content)
    return {
        "name": verdict["judge"],
        "outcome": verdict["outcome"],
        "reason": verdict["reason"],
        "judge_hash": verdict["judge_hash"],
        "simulated": verdict["simulated"],
        "findings": report.get("findings") or [],
        "outputs": report.get("outputs") or {},
    }


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"# Quality report: {_plain(document['step'])}"
    yield ""
    yield f"**{document['outcome']}**: {_plain(document['reason'])}"
    yield ""
    yield f"- commit: `{document['commit']}`"
    yield f"- policy: {document['policy']}"
    yield f"- author: {_plain(document['author'])}"
    if document["reviewer"]:
        model = f", model {_plain(document['model'])}" if document["model"] else ""
        independence = f", {document['independence']}" if document.get("independence") else ""
        yield f"- reviewer: {_plain(document['reviewer'])}{model}{independence}"
    for name, version in document["prompt_versions"].items():
        yield f"- prompt of {name}: `{version}`"
    for part in document["parts"]:
        yield ""
        simulated = ", simulated" if part["simulated"] else ""
        yield f"## {part['name']}: {part['outcome']}{simulated}"
        yield ""
        yield _plain(part["reason"])
        yield from _table(part["findings"])


def _table(findings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not findings:
        return
    yield ""
    yield "| severity | file | line | rule | finding |"
    yield "|---|---|---|---|---|"
    for each in findings:
        cells = (each["severity"], each["file"], each["line"], each.get("rule", "review"), each["message"])
        yield "| " + " | ".join("" if cell is None else _plain(str(cell)) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Foreign text as one line that ends no table and begins no heading, no link and no HTML."""
    one_line = " ".join(text.split())
    for mark, escaped in (
        ("\\", "\\\\"),
        ("|", "\\|"),
        ("<", "&lt;"),
        ("[", "\\["),
        ("`", "\\`"),
        ("#", "\\#"),
    ):
        one_line = one_line.replace(mark, escaped)
    return one_line
