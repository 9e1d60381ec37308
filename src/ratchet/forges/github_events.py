"""Reading GitHub's webhooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ratchet.config.database_url import mask_text
from ratchet.forges.forge import CheckState, EventKind, ForgeEvent, Trouble
from ratchet.forges.payload import commit, first, github_state, items, link, moment, number, part, tail, text

_NAME = re.compile(r"[a-z_]{1,60}")
Payload = Mapping[str, Any]


def read_github(headers: Mapping[str, str], payload: Payload) -> ForgeEvent:
    """What a delivery says; `kind` is `other` for everything that nobody here needs."""
    name = headers.get("x-github-event", "").strip().lower()
    if not _NAME.fullmatch(name):
        name = "webhook"
    plain = ForgeEvent("github", "", name, EventKind.OTHER, repository=_repository(payload))
    read = _READERS.get(name)
    return plain if read is None else read(plain, payload)


def _workflow_run(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    found = part(payload.get("workflow_run"))
    # One workflow may run twice for one commit: for the push, and for the pull request.
    by = text(found.get("event"), 60) or ""
    named = text(found.get("name")) or text(part(payload.get("workflow")).get("name")) or "workflow"
    return _check(
        plain,
        found,
        name=f"{named} (pull_request)" if by.startswith("pull_request") else named,
        branches=_own(found, payload, found.get("head_branch")),
        sha=found.get("head_sha"),
        url=found.get("html_url"),
        at=(found.get("updated_at"), found.get("run_started_at"), found.get("created_at")),
        pull_request=_first_pull_request(found),
    )


def _workflow_job(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    found = part(payload.get("workflow_job"))
    job = text(found.get("name"))
    read = _check(
        plain,
        found,
        name=job or "job",
        branches=_texts(found.get("head_branch")),
        sha=found.get("head_sha"),
        url=found.get("html_url"),
        at=(found.get("completed_at"), found.get("started_at"), found.get("created_at")),
    )
    if read.state is not CheckState.FAILED:
        return read
    failed = [
        each
        for each in items(found.get("steps"))
        if github_state(text(each.get("conclusion"))) is CheckState.FAILED
    ]
    return replace(read, trouble=Trouble(job, text(failed[0].get("name")) if failed else None))


def _check_suite(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    found = part(payload.get("check_suite"))
    # An app has one suite for each of its workflows, so its name alone would let one speak for another.
    app, which = text(part(found.get("app")).get("name")) or "check", number(found.get("id"))
    return _check(
        plain,
        found,
        name=app if which is None else f"{app} suite {which}",
        branches=_texts(found.get("head_branch")),
        sha=found.get("head_sha"),
        url=found.get("html_url"),
        at=(found.get("updated_at"), found.get("created_at")),
        pull_request=_first_pull_request(found),
    )


def _check_run(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    found = part(payload.get("check_run"))
    suite = part(found.get("check_suite"))
    read = _check(
        plain,
        found,
        name=text(found.get("name")) or "check",
        branches=_texts(found.get("head_branch")) or _texts(suite.get("head_branch")),
        sha=first(found.get("head_sha"), suite.get("head_sha")),
        url=first(found.get("html_url"), found.get("details_url")),
        at=(found.get("completed_at"), found.get("started_at")),
        pull_request=_first_pull_request(found),
    )
    if read.state is not CheckState.FAILED:
        return read
    output = part(found.get("output"))
    said = [tail(output.get(name)) for name in ("summary", "text")]
    whole = "\n".join(each for each in said if each)
    log = tail(mask_text(whole)) if whole else None
    return replace(read, trouble=Trouble(read.check, text(output.get("title")), log))


def _status(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    branches = [text(each.get("name"), 255) for each in items(payload.get("branches"))]
    read = _check(
        plain,
        {"status": payload.get("state")},
        name=text(payload.get("context")) or "status",
        branches=tuple(each for each in branches if each) or _texts(payload.get("ref")),
        sha=payload.get("sha"),
        url=payload.get("target_url"),
        at=(payload.get("updated_at"), payload.get("created_at")),
    )
    if read.state is not CheckState.FAILED:
        return read
    told = part(payload.get("detail"))
    log = tail(told.get("log_tail"))
    return replace(
        read,
        trouble=Trouble(
            text(told.get("job")) or read.check,
            text(told.get("step")) or text(payload.get("description")),
            mask_text(log) if log else None,
        ),
    )


def _pull_request(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    found = part(payload.get("pull_request"))
    head = part(found.get("head"))
    origin, base = (_repository({"repository": part(found.get(end)).get("repo")}) for end in ("head", "base"))
    # A fork, also one that is gone, may have a branch of the same name; that is no concern of this repository.
    gone = "repo" in head and head["repo"] is None
    foreign = gone or (origin is not None and base is not None and origin != base)
    merged = found.get("merged") is True
    action = text(payload.get("action"), 60)
    return replace(
        plain,
        kind=EventKind.PULL_REQUEST,
        branches=() if foreign else _texts(head.get("ref")),
        commit=commit(head.get("sha")),
        outcome=action,
        url=link(found.get("html_url")),
        pull_request=first(number(found.get("number")), number(payload.get("number"))),
        draft=found.get("draft") is True,
        merged=merged,
        closed=merged or found.get("state") == "closed" or action == "closed",
        at=first(*(moment(found.get(name)) for name in ("merged_at", "closed_at", "updated_at"))),
    )


def _push(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    head = part(payload.get("head_commit"))
    return replace(
        plain,
        kind=EventKind.PUSH,
        branches=_texts(payload.get("ref")),
        commit=commit(payload.get("after")),
        url=link(payload.get("compare")),
        at=moment(head.get("timestamp")),
    )


def _ping(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    return replace(plain, kind=EventKind.PING, url=link(part(payload.get("hook")).get("url")))


_READERS: Mapping[str, Callable[[ForgeEvent, Payload], ForgeEvent]] = {
    "workflow_run": _workflow_run,
    "workflow_job": _workflow_job,
    "check_suite": _check_suite,
    "check_run": _check_run,
    "status": _status,
    "pull_request": _pull_request,
    "push": _push,
    "ping": _ping,
}


def _check(
    plain: ForgeEvent,
    found: Payload,
    *,
    name: str,
    branches: tuple[str, ...],
    sha: Any,
    url: Any,
    at: tuple[Any, ...],
    pull_request: int | None = None,
) -> ForgeEvent:
    word = text(found.get("conclusion"), 60) or text(found.get("status"), 60)
    return replace(
        plain,
        kind=EventKind.CHECK,
        branches=branches,
        commit=commit(sha),
        check=name,
        state=github_state(word),
        outcome=None if word is None else word.lower(),
        url=link(url),
        pull_request=pull_request,
        at=first(*(moment(each) for each in at)),
    )


def _repository(payload: Payload) -> str | None:
    found = part(payload.get("repository"))
    return first(*(text(found.get(name)) for name in ("clone_url", "html_url", "git_url", "ssh_url")))


def _own(found: Payload, payload: Payload, branch: Any) -> tuple[str, ...]:
    """The branch, unless it is one of a fork."""
    origin = text(part(found.get("head_repository")).get("full_name"))
    here = text(part(payload.get("repository")).get("full_name"))
    return () if origin and here and origin.lower() != here.lower() else _texts(branch)


def _first_pull_request(found: Payload) -> int | None:
    return next((number(each.get("number")) for each in items(found.get("pull_requests"))), None)


def _texts(branch: Any) -> tuple[str, ...]:
    found = text(branch, 255)
    return () if found is None else (found,)
