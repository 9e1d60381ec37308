"""GitLab's merge requests, statuses and webhooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from ratchet.config.redaction import mask_text
from ratchet.forges.api import Api, ForgeResponse, Unreachable, refusal, with_query
from ratchet.forges.forge import (
    CheckState,
    ForgeCheck,
    ForgeEvent,
    ForgeEventKind,
    ForgeJob,
    PullRequest,
    PullRequestState,
    Trouble,
    commit,
    first,
    gitlab_state,
    items,
    link,
    moment,
    number,
    part,
    tail,
    text,
)

_PAGE = 100
_DRAFT = "Draft: "
_STATES = {
    "opened": PullRequestState.OPEN,
    "locked": PullRequestState.OPEN,
    "merged": PullRequestState.MERGED,
    "closed": PullRequestState.CLOSED,
}


class GitLab:
    """One project, `group/name` or deeper."""

    def __init__(self, api: Api, repository: str) -> None:
        self._api = api
        self._repository = repository
        self._place = f"projects/{quote(repository, safe='')}"

    async def find_pull_request(self, branch: str) -> PullRequest | None:
        path = with_query(
            f"{self._place}/merge_requests",
            source_branch=branch,
            state="all",
            order_by="created_at",
            sort="desc",
            per_page=_PAGE,
        )
        answer = await self._api.ask("GET", path)
        listed = items(self._good(answer, f"the merge requests of {self._repository}"))
        own = [
            each
            for each in listed
            if each.get("source_branch") == branch
            and each.get("source_project_id") == each.get("target_project_id")
        ]
        found = [self._read(each) for each in own]
        opened = [each for each in found if each.state is PullRequestState.OPEN]
        return max(opened or found, key=lambda each: each.number, default=None)

    async def open_pull_request(
        self, *, branch: str, base: str, title: str, body: str, draft: bool = True
    ) -> PullRequest:
        there = await self.find_pull_request(branch)
        if there is not None:
            return there
        wanted = {
            "source_branch": branch,
            "target_branch": base,
            "title": f"{_DRAFT}{title}" if draft else title,
            "description": body,
        }
        answer = await self._api.ask("POST", f"{self._place}/merge_requests", wanted)
        if answer.status in (409, 422):
            # Perhaps somebody was quicker. That is no success unless it is really there.
            there = await self.find_pull_request(branch)
            if there is not None:
                return there
        return self._read(self._good(answer, f"a merge request of {branch} in {self._repository}"))

    async def update_pull_request(
        self, number: int, *, title: str | None = None, body: str | None = None
    ) -> PullRequest:
        wanted: dict[str, str] = {} if body is None else {"description": body}
        if title is not None:
            # The title is what makes a merge request a draft.
            wanted["title"] = f"{_DRAFT}{title}" if (await self._one(number)).draft else title
        return await self._change(number, wanted)

    async def mark_ready(self, number: int) -> PullRequest:
        there = await self._one(number)
        if not there.draft:
            return there
        return await self._change(number, {"title": _plain(there.title)})

    async def checks(self, commit: str) -> tuple[ForgeCheck, ...]:
        place = f"{self._place}/repository/commits/{quote(commit, safe='')}/statuses"
        answer = await self._api.ask("GET", with_query(place, per_page=_PAGE))
        return tuple(
            ForgeCheck(
                text(each.get("name")) or "check",
                gitlab_state(text(each.get("status")), may_fail=each.get("allow_failure") is True)
                or CheckState.PENDING,
                text(each.get("target_url")),
            )
            for each in items(self._good(answer, f"the checks of {commit[:12]}"))
        )

    async def _one(self, number: int) -> PullRequest:
        answer = await self._api.ask("GET", f"{self._place}/merge_requests/{number}")
        return self._read(self._good(answer, self._named(number)))

    async def _change(self, number: int, wanted: dict[str, str]) -> PullRequest:
        answer = await self._api.ask("PUT", f"{self._place}/merge_requests/{number}", wanted)
        return self._read(self._good(answer, self._named(number)))

    def _good(self, answer: ForgeResponse, what: str) -> Any:
        if not answer.ok:
            raise refusal(answer, self._api, what)
        return answer.value

    def _named(self, number: int) -> str:
        return f"merge request {number} of {self._repository}"

    def _read(self, value: Any) -> PullRequest:
        found = part(value)
        which, url = number(found.get("iid")), text(found.get("web_url"))
        if which is None or url is None:
            raise Unreachable(
                f"the forge answered for {self._repository} with something that is no merge request",
                hint="check that protocols.gitlab_url is the address of its REST interface",
            )
        return PullRequest(
            provider="gitlab",
            number=which,
            url=url,
            state=_STATES.get(found.get("state", ""), PullRequestState.OPEN),
            draft=found.get("draft") is True or found.get("work_in_progress") is True,
            branch=text(found.get("source_branch")) or "",
            base=text(found.get("target_branch")) or "",
            title=text(found.get("title")) or "",
        )


def _plain(title: str) -> str:
    """The title without what makes it a draft; GitLab takes several forms of it."""
    for mark in ("draft:", "[draft]", "(draft)"):
        if title.lower().startswith(mark):
            return title[len(mark) :].strip()
    return title


_NAME = re.compile(r"[a-z_]{1,60}")
# By the header, for bodies that do not say what they are.
_HOOKS = {
    "pipeline hook": "pipeline",
    "job hook": "build",
    "merge request hook": "merge_request",
    "push hook": "push",
    "tag push hook": "tag_push",
    "note hook": "note",
}
_PIPELINE = "pipeline"
Payload = Mapping[str, Any]


def read_gitlab(headers: Mapping[str, str], payload: Payload) -> ForgeEvent:
    """What a delivery says; `kind` is `other` for everything that nobody here needs."""
    hook = headers.get("x-gitlab-event", "").strip().lower()
    name = (text(payload.get("object_kind"), 60) or _HOOKS.get(hook, "webhook")).lower()
    if not _NAME.fullmatch(name):
        name = "webhook"
    plain = ForgeEvent("gitlab", "", name, ForgeEventKind.OTHER, repository=_repository(payload))
    read = _READERS.get(name)
    return plain if read is None else read(plain, payload)


def _pipeline(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    found = part(payload.get("object_attributes"))
    merge_request = part(payload.get("merge_request"))
    # A pipeline for the merge request is another one than that for the push of the same commit.
    for_merge = text(found.get("source"), 60) == "merge_request_event"
    word = text(found.get("status"), 60) or text(found.get("state"), 60)
    read = replace(
        plain,
        kind=ForgeEventKind.CHECK,
        branches=()
        if _foreign(merge_request)
        else _branches(
            merge_request.get("source_branch") if for_merge else None, found.get("ref"), payload.get("ref")
        ),
        commit=commit(first(found.get("sha"), part(payload.get("commit")).get("id"))),
        check=text(found.get("name")) or (f"{_PIPELINE} (merge request)" if for_merge else _PIPELINE),
        state=gitlab_state(word),
        outcome=None if word is None else word.lower(),
        url=link(found.get("url")),
        pull_request=number(merge_request.get("iid")),
        jobs=_jobs(payload),
        at=first(*(moment(found.get(name)) for name in ("finished_at", "created_at"))),
    )
    return read if read.state is not CheckState.FAILED else replace(read, trouble=_trouble(read.jobs, found))


def _jobs(payload: Payload) -> tuple[ForgeJob, ...]:
    found: dict[str, ForgeJob] = {}
    for each in items(payload.get("builds")):
        name, word = text(each.get("name")), text(each.get("status"), 60)
        state = gitlab_state(word, may_fail=each.get("allow_failure") is True)
        at = first(*(moment(each.get(key)) for key in ("finished_at", "started_at", "created_at")))
        if (
            name is None
            or word is None
            or state is None
            or (name in found and (found[name].at or 0) > (at or 0))
        ):
            continue
        failed = state is CheckState.FAILED
        step = first(text(each.get("failure_reason")), text(each.get("stage")))
        found[name] = ForgeJob(name, state, word.lower(), at, Trouble(name, step) if failed else Trouble())
    return tuple(found.values())


def _trouble(jobs: tuple[ForgeJob, ...], found: Payload) -> Trouble:
    failed = next((each.trouble for each in jobs if each.state is CheckState.FAILED), Trouble())
    return _reported_trouble(found, failed)


def _reported_trouble(found: Payload, otherwise: Trouble) -> Trouble:
    """Where it failed, as a script that reports for itself tells it."""
    detail = part(found.get("detail"))
    log = tail(detail.get("log_tail"))
    return Trouble(
        text(detail.get("job")) or otherwise.job,
        text(detail.get("step")) or otherwise.step,
        mask_text(log) if log else None,
    )


def _build(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    word = text(payload.get("build_status"), 60)
    job = text(payload.get("build_name"))
    state = gitlab_state(word, may_fail=payload.get("build_allow_failure") is True)
    step = first(text(payload.get("build_failure_reason")), text(payload.get("build_stage")))
    return replace(
        plain,
        kind=ForgeEventKind.CHECK,
        branches=() if payload.get("tag") is True else _branches(payload.get("ref")),
        commit=commit(first(payload.get("sha"), part(payload.get("commit")).get("sha"))),
        check=job or "job",
        state=state,
        outcome=None if word is None else word.lower(),
        url=link(payload.get("build_url")),
        trouble=_reported_trouble(payload, Trouble(job, step)) if state is CheckState.FAILED else Trouble(),
        at=first(
            *(
                moment(payload.get(name))
                for name in ("build_finished_at", "build_started_at", "build_created_at")
            )
        ),
    )


def _merge_request(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    found = part(payload.get("object_attributes"))
    state = text(found.get("state"), 60) or text(found.get("status"), 60)
    return replace(
        plain,
        kind=ForgeEventKind.PULL_REQUEST,
        branches=()
        if _foreign(found)
        else _branches(found.get("source_branch"), found.get("ref"), payload.get("ref")),
        commit=commit(part(found.get("last_commit")).get("id")),
        outcome=text(found.get("action"), 60) or state,
        url=link(found.get("url")),
        pull_request=number(found.get("iid")),
        draft=found.get("draft") is True or found.get("work_in_progress") is True,
        merged=state == "merged",
        closed=state in ("merged", "closed"),
        at=moment(found.get("updated_at")),
    )


def _push(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    return replace(
        plain,
        kind=ForgeEventKind.PUSH,
        branches=_branches(payload.get("ref")),
        commit=commit(first(payload.get("checkout_sha"), payload.get("after"))),
    )


def _note(plain: ForgeEvent, payload: Payload) -> ForgeEvent:
    merge_request = part(payload.get("merge_request"))
    return replace(
        plain,
        branches=_branches(merge_request.get("source_branch")),
        url=link(part(payload.get("object_attributes")).get("url")),
        pull_request=number(merge_request.get("iid")),
    )


_READERS: Mapping[str, Callable[[ForgeEvent, Payload], ForgeEvent]] = {
    "pipeline": _pipeline,
    "build": _build,
    "job": _build,
    "merge_request": _merge_request,
    "push": _push,
    "note": _note,
}


def _repository(payload: Payload) -> str | None:
    project, repository = part(payload.get("project")), part(payload.get("repository"))
    return first(
        *(text(project.get(name)) for name in ("git_http_url", "web_url", "git_ssh_url")),
        *(text(repository.get(name)) for name in ("git_http_url", "homepage", "git_ssh_url")),
    )


def _foreign(merge_request: Payload) -> bool:
    """Whether it comes from a fork, which may have a branch of the same name."""
    ends = [number(merge_request.get(f"{end}_project_id")) for end in ("source", "target")]
    return None not in ends and ends[0] != ends[1]


def _branches(*values: Any) -> tuple[str, ...]:
    found = first(*(text(each, 255) for each in values))
    return () if found is None else (found,)
