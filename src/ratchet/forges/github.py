"""GitHub's pull requests and checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from ratchet.forges.api import Answer, Api, Refused, Unreachable, complaint, refusal, with_query
from ratchet.forges.forge import Check, CheckState, PullRequest, PullRequestState
from ratchet.forges.payload import github_state, items, number, part, text

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
            raise Refused(
                f"{self._named(number)} stays a draft: {self._api.hide(complaint(answer))}",
                hint="mark it as ready on the forge, or give the token the right to write pull requests",
            )
        return replace(there, draft=False)

    async def checks(self, commit: str) -> tuple[Check, ...]:
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

    def _good(self, answer: Answer, what: str) -> Any:
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


def _check(name: Any, word: Any, url: Any) -> Check:
    return Check(text(name) or "check", github_state(text(word)) or CheckState.PENDING, text(url))
