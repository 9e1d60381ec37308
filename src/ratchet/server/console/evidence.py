"""What attempts left behind, cut to what a page can show. All of it is foreign text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from ratchet.kernel import NotFound
from ratchet.server.service import Access

_LONGEST = 200_000
_LONGEST_REPORT = 2_000_000
_MOST_FINDINGS = 200


@dataclass(frozen=True, slots=True)
class Excerpt:
    """`cut` says that there is more of it."""

    text: str
    cut: bool


class ReviewFinding(BaseModel):
    message: str = ""
    severity: str = "note"
    rule: str = "review"
    file: str | None = None
    line: int | None = None


class Part(BaseModel):
    """What one judge of several said."""

    name: str
    outcome: str
    reason: str = ""
    simulated: bool = False
    findings: list[ReviewFinding] = []
    outputs: dict[str, str] = {}


class EvidenceReport(BaseModel):
    """The report of a verdict, judge by judge."""

    policy: str | None = None
    author: str | None = None
    reviewer: str | None = None
    model: str | None = None
    parts: list[Part]


class JudgedEvidence(BaseModel):
    """A verdict, as far as it can be shown."""

    outcome: str
    reason: str = ""
    judge: str = ""
    judge_hash: str = ""
    score: float | None = None
    measurements: dict[str, float] = {}
    simulated: bool = False


def verdict_of(recorded: Any) -> JudgedEvidence | None:
    try:
        return None if recorded is None else JudgedEvidence.model_validate(recorded)
    except ValidationError:
        return None


def pull_request_of(known: Any) -> dict[str, Any] | None:
    """A pull request as the forge told of it; nothing before there is one."""
    if not isinstance(known, Mapping) or "number" not in known:
        return None
    return {name: known.get(name) for name in ("number", "url", "state", "draft")}


def excerpt(api: Access, address: str | None) -> Excerpt | None:
    """The beginning of an artifact, by its hash or its path in the API; nothing if it is not here."""
    content = _read(api, address, _LONGEST)
    if content is None:
        return None
    return Excerpt(content[:_LONGEST].decode("utf-8", "replace"), len(content) > _LONGEST)


def report_of(api: Access, recorded: Any) -> EvidenceReport | Excerpt | None:
    """What the judges of a verdict wrote down; as it is where it is no report of several judges."""
    address = recorded.get("report") if isinstance(recorded, Mapping) else None
    content = _read(api, address, _LONGEST_REPORT)
    if content is None:
        return None
    try:
        found = EvidenceReport.model_validate_json(content)
    except ValidationError:
        return excerpt(api, address)
    parts = [
        part.model_copy(
            update={
                "findings": part.findings[:_MOST_FINDINGS],
                "outputs": {name: text[-_LONGEST // 10 :] for name, text in part.outputs.items()},
            }
        )
        for part in found.parts
    ]
    return found.model_copy(update={"parts": parts})


def _read(api: Access, address: str | None, most: int) -> bytes | None:
    """At most one byte more than wanted, so that it is known whether there is more."""
    if address is None:
        return None
    try:
        with api.ledger.artifacts.open(address.rpartition("/")[2]) as file:
            return file.read(most + 1)
    except NotFound:
        return None
