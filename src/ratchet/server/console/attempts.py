"""One attempt: what was asked, what was said and changed, how it was judged, and everything that it left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ValidationError, model_validator
from starlette.responses import FileResponse, Response

from ratchet import kernel
from ratchet.engines.transcript import TranscriptPage, read_transcript
from ratchet.kernel import NotFound, decoded
from ratchet.ledger import Artifact, Step, Transaction
from ratchet.ledger import artifacts as ledger_artifacts
from ratchet.ledger.artifacts import of_attempt
from ratchet.ledger.ledger import tail_log
from ratchet.ledger.projects import projects_of_runs
from ratchet.ledger.protocols import get_protocol_step
from ratchet.ledger.runs import get_attempt, get_run, get_step
from ratchet.ledger.usage import SessionRow, get_session, list_sessions
from ratchet.loop import PROMPT_FILE
from ratchet.protocols.views import attempt_answers
from ratchet.server.console.access import ROOT
from ratchet.server.console.page import Page, View
from ratchet.server.fields import MAX_ID, Foreign, Id, IdFilter, Json, Moment, Paging, Shape, TextFilter
from ratchet.server.operation import shown
from ratchet.server.project_scope import enter
from ratchet.server.routes.attempts import change_of, content
from ratchet.server.service import Access, Api

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
    content = _read_document(api, address, _LONGEST)
    if content is None:
        return None
    return Excerpt(decoded(content[:_LONGEST]), len(content) > _LONGEST)


def report_of(api: Access, recorded: Any) -> EvidenceReport | Excerpt | None:
    """What the judges of a verdict wrote down; as it is where it is no report of several judges."""
    address = recorded.get("report") if isinstance(recorded, Mapping) else None
    content = _read_document(api, address, _LONGEST_REPORT)
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


def _read_document(api: Access, address: str | None, most: int) -> bytes | None:
    """At most one byte more than wanted, so that it is known whether there is more."""
    if address is None:
        return None
    try:
        with api.ledger.artifacts.open(address.rpartition("/")[2]) as file:
            return file.read(most + 1)
    except NotFound:
        return None


router = APIRouter()
_TAIL = 400
_ARTIFACTS = 100


@router.get("/attempts/{attempt_id}")
def attempt(page: Page, attempt_id: Id) -> Response:
    document = _document(page.api, attempt_id)
    title = f"{document['step'].name}, attempt {document['attempt'].number}"
    live = {"attempt_id": attempt_id} if document["attempt"].ended_at is None else None
    return page.show("attempt.html", document, title=title, live=live)


@router.get("/artifacts/{sha256}")
def artifact(api: Api, sha256: str) -> FileResponse:
    """The file as a download. Whatever it says that it is, no page may use it as a script or a style."""
    answer = content(api, sha256)
    answer.headers["Content-Type"] = "application/octet-stream"
    return answer


def _document(api: Access, attempt_id: int) -> dict[str, Any]:
    with api.read() as tx:
        found = get_attempt(tx, attempt_id)
        record = attempt_answers(tx, [found])[0]
        run = get_run(tx, found.run_id)
        log = tail_log(tx, attempt_id, most=_TAIL)
        change = change_of(tx, attempt_id)
        left = ledger_artifacts.latest(tx, attempt_id=attempt_id, limit=_ARTIFACTS)
        step = get_step(tx, found.step_id)
        place = _place(tx, step)
    return {
        "attempt": record,
        "step": shown(step),
        "run": {
            "id": run.id,
            "kind": run.kind,
            "name": run.name,
            "status": run.status,
            "simulated": run.simulated or run.used_recording,
            "page": place,
        },
        "prompt": excerpt(api, record.links.prompt),
        "verdict": verdict_of(found.verdict),
        "report": report_of(api, found.verdict),
        "diff": excerpt(api, change),
        "log": log,
        "artifacts": [shown(each) for each in left],
    }


def _place(tx: Transaction, step: Step) -> str:
    """The page that the attempt belongs to."""
    try:
        get_protocol_step(tx, step.id)
    except NotFound:
        return f"{ROOT}/runs/{step.run_id}"
    return f"{ROOT}/protocols/{step.run_id}?step_id={step.id}"


class UsageView(Shape):
    """What was used. A cost of which a part is unknown is null."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float | None
    wall_seconds: float

    @model_validator(mode="before")
    @classmethod
    def _whole_cost(cls, used: Any) -> Any:
        if not isinstance(used, kernel.Usage):
            return used
        return {name: getattr(used, name) for name in cls.model_fields} | {"cost_usd": used.whole_cost_usd}


class SessionView(Shape):
    """`failure` is empty for one that ended well. `priced` is false where tokens were used and no price is known."""

    id: int
    run_id: int | None
    attempt_id: int | None
    role: str
    engine: str
    model: str | None
    failure: str | None
    reason: str | None
    resumable: bool
    transcript: str | None
    simulated: bool
    usage: UsageView
    priced: bool
    ended_at: Moment

    @classmethod
    def of(cls, row: SessionRow) -> SessionView:
        own = {name: getattr(row, name) for name in cls.model_fields if hasattr(row, name)}
        return cls.model_validate(
            {
                **own,
                "resumable": row.resume is not None,
                "priced": row.usage.unpriced_tokens == 0,
                "ended_at": row.at,
            }
        )


class Entry(Shape):
    """`turn` is what was used since the entry before that told usage."""

    number: int
    ms: int
    kind: str
    text: Foreign
    data: Json
    turn: UsageView | None


def prompt_of(tx: Transaction, session: SessionRow) -> Artifact | None:
    """What the session was asked, where its flow keeps that: the last one that was kept before its transcript."""
    if session.attempt_id is None:
        return None
    kept = of_attempt(tx, session.attempt_id)
    names = (f"{session.role}-prompt.md", *((PROMPT_FILE,) if session.role == "author" else ()))
    end = max((each.id for each in kept if each.sha256 == session.transcript), default=None)
    found = [each for each in kept if each.name in names and (end is None or each.id <= end)]
    return max(found, key=lambda each: each.id, default=None)


_ENTRIES = 100
SessionId = Annotated[int, Path(ge=1, le=MAX_ID)]
After = Annotated[int, Query(ge=0, le=MAX_ID, description="continue behind this line of the transcript")]


@router.get("/sessions")
def sessions(
    page: Page,
    pager: Paging,
    run_id: IdFilter = None,
    attempt_id: IdFilter = None,
    engine: TextFilter = None,
    failed: bool = False,
) -> Response:
    with page.api.read() as tx:
        found = list_sessions(
            tx,
            run_id=run_id,
            attempt_id=attempt_id,
            engine=engine,
            failed=failed,
            before=pager.before,
            limit=pager.one_more,
        )
        projects = projects_of_runs(tx, {each.run_id for each in found if each.run_id is not None})
        hidden = page.api.caller.hidden(tx, projects.values())
    cut = pager.without(found, lambda each: projects.get(each.run_id or 0) in hidden)
    document = {
        "sessions": [SessionView.of(each) for each in cut.items],
        "next": cut.next,
        "run_id": run_id,
        "attempt_id": attempt_id,
        "engine": engine,
        "failed": failed,
    }
    live = {"type": "session.*"} if pager.before is None else None
    return page.show("sessions.html", document, title="Sessions", live=live)


@router.get("/sessions/{session_id}")
def session(page: Page, session_id: SessionId, after: After = 0, search: TextFilter = None) -> Response:
    """What was said, a page at a time; with `search` only what contains it."""
    with page.api.read() as tx:
        found = get_session(tx, session_id)
        if found.run_id is not None:
            enter(page.api, tx, "run", found.run_id)
        prompt = prompt_of(tx, found)
        run = None if found.run_id is None else get_run(tx, found.run_id)
    read = _read(page, found, after, search)
    document = {
        "session": SessionView.of(found),
        "run": None
        if run is None
        else {
            "id": run.id,
            "kind": run.kind,
            "name": run.name,
            "status": run.status,
            "simulated": run.simulated or run.used_recording,
        },
        "prompt": None if prompt is None else excerpt(page.api, prompt.sha256),
        "search": search,
        "after": after,
        "transcript": None if read is None else _shown(read),
    }
    return page.show("session.html", document, title=f"Session {session_id}")


def _read(page: View, found: SessionRow, after: int, search: str | None) -> TranscriptPage | None:
    """Nothing where no transcript was kept, or where it has been removed since."""
    if found.transcript is None:
        return None
    try:
        with page.api.ledger.artifacts.open(found.transcript) as file:
            return read_transcript(file, after=after, limit=_ENTRIES, search=search)
    except NotFound:
        return None


def _shown(read: TranscriptPage) -> dict[str, Any]:
    return {
        "entries": [Entry.model_validate(each) for each in read.entries],
        "next": read.next,
        "lines": read.lines,
        "matches": read.matches,
    }
