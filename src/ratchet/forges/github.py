"""GitHub's pull requests, checks and webhooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from ratchet.config.redaction import mask_text
from ratchet.forges.api import Api, ForgeRefused, ForgeResponse, Unreachable, complaint, refusal, with_query
from ratchet.forges.forge import (
    CheckState,
    ForgeCheck,
    ForgeEvent,
    ForgeEventKind,
    PullRequest,
    PullRequestState,
    Trouble,
    commit,
    first,
    github_state,
    items,
    link,
    moment,
    number,
    part,
    tail,
    text,
)

HEADERS = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
GRAPHQL = "graphql"
_PAGE = 100
_READY = (
    "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id})"
    " { pullRequest { isDraft } } }"
)


class GitHub:
    """One repository, `owner/name`."""

    def __init__(self, api: Api, repository: str) -> None:
        self._api = api
        self._repository = repository
        self._place = f"repos/{quote(repository)}"

    async def find_pull_request(self, branch: str) -> PullRequest | None:
        owner = self._repository.partition("/")[0]
        path = with_query(
            f"{self._place}/pulls",
            head=f"{owner}:{branch}",
            state="all",
            sort="created",
            direction="desc",
            per_page=_PAGE,
        )
        listed = await self._get(path, f"the pull requests of {self._repository}")
        # GitHub shows all pull requests when it does not understand the filter, and those of forks besides.
        own = [each for each in items(listed) if self._is_from(each, branch)]
        found = [self._read(each) for each in own]
        opened = [each for each in found if each.state is PullRequestState.OPEN]
        return max(opened or found, key=lambda each: each.number, default=None)

    async def open_pull_request(
        self, *, branch: str, base: str, title: str, body: str, draft: bool = True
    ) -> PullRequest:
        there = await self.find_pull_request(branch)
        if there is not None:
            return there
        what = f"a pull request of {branch} in {self._repository}"
        wanted = {"title": title, "head": branch, "base": base, "body": body}
        answer = await self._api.ask("POST", f"{self._place}/pulls", {**wanted, "draft": draft})
        if draft and answer.status == 422 and "draft" in complaint(answer).lower():
            answer = await self._api.ask("POST", f"{self._place}/pulls", wanted)
        if answer.status == 422:
            # Perhaps somebody was quicker. That is no success unless it is really there.
            there = await self.find_pull_request(branch)
            if there is not None:
                return there
        return self._read(self._good(answer, what))

    async def update_pull_request(
        self, number: int, *, title: str | None = None, body: str | None = None
    ) -> PullRequest:
        wanted = {name: value for name, value in (("title", title), ("body", body)) if value is not None}
        answer = await self._api.ask("PATCH", f"{self._place}/pulls/{number}", wanted)
        return self._read(self._good(answer, self._named(number)))

    async def mark_ready(self, number: int) -> PullRequest:
        found = await self._get(f"{self._place}/pulls/{number}", self._named(number))
        there = self._read(found)
        if not there.draft:
            return there
        # The REST interface has no way to say it.
        asked = {"query": _READY, "variables": {"id": text(part(found).get("node_id"))}}
        answer = await self._api.ask("POST", GRAPHQL, asked)
        value = self._good(answer, self._named(number))
        if part(value).get("errors"):
            raise ForgeRefused(
                f"{self._named(number)} stays a draft: {self._api.hide(complaint(answer))}",
                hint="mark it as ready on the forge, or give the token the right to write pull requests",
            )
        return replace(there, draft=False)

    async def checks(self, commit: str) -> tuple[ForgeCheck, ...]:
        place, what = f"{self._place}/commits/{quote(commit, safe='')}", f"the checks of {commit[:12]}"
        runs = part(await self._get(with_query(f"{place}/check-runs", per_page=_PAGE), what))
        status = part(await self._get(with_query(f"{place}/status", per_page=_PAGE), what))
        found = [
            _check(each.get("name"), each.get("conclusion") or each.get("status"), each.get("html_url"))
            for each in items(runs.get("check_runs"))
        ]
        found += [
            _check(each.get("context"), each.get("state"), each.get("target_url"))
            for each in items(status.get("statuses"))
        ]
        return tuple(found)

    async def _get(self, path: str, what: str) -> Any:
        return self._good(await self._api.ask("GET", path), what)

    def _good(self, answer: ForgeResponse, what: str) -> Any:
        if not answer.ok:
            raise refusal(answer, self._api, what)
        return answer.value

    def _named(self, number: int) -> str:
        return f"pull request {number} of {self._repository}"

    def _is_from(self, found: Mapping[str, Any], branch: str) -> bool:
        head = part(found.get("head"))
        origin = text(part(head.get("repo")).get("full_name")) or ""
        return head.get("ref") == branch and origin.lower() == self._repository.lower()

    def _read(self, value: Any) -> PullRequest:
        found = part(value)
        which, url = number(found.get("number")), text(found.get("html_url"))
        if which is None or url is None:
            raise Unreachable(
                f"the forge answered for {self._repository} with something that is no pull request",
                hint="check that protocols.github_url is the address of its REST interface",
            )
        merged = bool(found.get("merged_at")) or found.get("merged") is True
        closed = PullRequestState.CLOSED if found.get("state") == "closed" else PullRequestState.OPEN
        return PullRequest(
            provider="github",
            number=which,
            url=url,
            state=PullRequestState.MERGED if merged else closed,
            draft=found.get("draft") is True,
            branch=text(part(found.get("head")).get("ref")) or "",
            base=text(part(found.get("base")).get("ref")) or "",
            title=text(found.get("title")) or "",
        )


def _check(name: Any, word: Any, url: Any) -> ForgeCheck:
    return ForgeCheck(text(name) or "check", github_state(text(word)) or CheckState.PENDING, text(url))


_NAME = re.compile(r"[a-z_]{1,60}")
Payload = Mapping[str, Any]


def read_github(headers: Mapping[str, str], payload: Payload) -> ForgeEvent:
    """What a delivery says; `kind` is `other` for everything that nobody here needs."""
    name = headers.get("x-github-event", "").strip().lower()
    if not _NAME.fullmatch(name):
        name = "webhook"
    plain = ForgeEvent("github", "", name, ForgeEventKind.OTHER, repository=_repository(payload))
    read = _READERS.get(name)
    return plain if read is None else read(plain, payload)


def _workflow_run(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    found = part(payload.get("workflow_run"))
    # One workflow may run twice for one commit: for the push, and for the pull request.
    by = text(found.get("event"), 60) or ""
    named = text(found.get("name")) or text(part(payload.get("workflow")).get("name")) or "workflow"
    return _check_event(
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
    read = _check_event(
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
    return _check_event(
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
    read = _check_event(
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
    read = _check_event(
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
        kind=ForgeEventKind.PULL_REQUEST,
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
        kind=ForgeEventKind.PUSH,
        branches=_texts(payload.get("ref")),
        commit=commit(payload.get("after")),
        url=link(payload.get("compare")),
        at=moment(head.get("timestamp")),
    )


def _ping(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    return replace(plain, kind=ForgeEventKind.PING, url=link(part(payload.get("hook")).get("url")))


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


def _check_event(
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
        kind=ForgeEventKind.CHECK,
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
