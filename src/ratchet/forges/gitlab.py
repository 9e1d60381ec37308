"""GitLab's merge requests and statuses."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from ratchet.forges.api import Answer, Api, Unreachable, refusal, with_query
from ratchet.forges.forge import Check, CheckState, PullRequest, PullRequestState
from ratchet.forges.payload import gitlab_state, items, number, part, text

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

    async def checks(self, commit: str) -> tuple[Check, ...]:
        place = f"{self._place}/repository/commits/{quote(commit, safe='')}/statuses"
        answer = await self._api.ask("GET", with_query(place, per_page=_PAGE))
        return tuple(
            Check(
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

    def _good(self, answer: Answer, what: str) -> Any:
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
