"""GitLab as far as it is needed: merge requests, statuses, and webhooks with their token."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection
from typing import Any

import httpx

from tests.forges.stand_in import Asked, Said, StandIn

_MERGE_REQUESTS = re.compile(r"/api/v4/projects/([^/]+)/merge_requests(?:/(\d+))?")
_STATUSES = re.compile(r"/api/v4/projects/[^/]+/repository/commits/([0-9a-f]+)/statuses")
_DRAFT = ("draft:", "[draft]", "(draft)")


class GitLabStandIn(StandIn):
    """One project of GitLab, also below a group."""

    def __init__(
        self, repository: str = "acme/tools/demo", *, branches: Callable[[], Collection[str]] | None = None
    ) -> None:
        super().__init__()
        self.repository = repository
        self.branches = branches
        self.merge_requests: dict[int, dict[str, Any]] = {}
        self.statuses: list[dict[str, Any]] = []

    @property
    def api(self) -> str:
        return f"{self.url}/api/v4"

    def add_merge_request(self, branch: str, *, target: str = "main", **more: Any) -> dict[str, Any]:
        number = len(self.merge_requests) + 1
        self.merge_requests[number] = {
            "iid": number,
            "web_url": f"https://gitlab.com/{self.repository}/-/merge_requests/{number}",
            "state": "opened",
            "title": f"merge request {number}",
            "source_branch": branch,
            "target_branch": target,
            "source_project_id": 5,
            "target_project_id": 5,
            **more,
        }
        return self._shown(number)

    def answer(self, asked: Asked) -> Said:
        if found := _MERGE_REQUESTS.fullmatch(asked.path):
            if found[1].lower() != self.repository.replace("/", "%2F").lower():
                return Said(404, {"message": "404 Project Not Found"})
            return self._merge_requests(asked, int(found[2]) if found[2] else None)
        if found := _STATUSES.fullmatch(asked.path):
            return Said(200, [each for each in self.statuses if each["sha"] == found[1]])
        return Said(404, {"message": "404 Not Found"})

    def _merge_requests(self, asked: Asked, number: int | None) -> Said:
        if number is not None:
            if number not in self.merge_requests:
                return Said(404, {"message": "404 Not found"})
            if asked.method == "PUT":
                self.merge_requests[number].update(asked.body)
            return Said(200, self._shown(number))
        branch = asked.query.get("source_branch") if asked.method == "GET" else asked.body["source_branch"]
        there = [each for each in self.merge_requests.values() if each["source_branch"] == branch]
        if asked.method == "GET":
            return Said(200, [self._shown(each["iid"]) for each in there])
        if self.branches is not None and branch not in self.branches():
            return Said(400, {"message": {"source_branch": ["does not exist"]}})
        if any(each["state"] == "opened" for each in there):
            told = f"Another open merge request already exists for this source branch: !{there[0]['iid']}"
            return Said(409, {"message": [told]})
        words = {"title": asked.body["title"], "description": asked.body["description"]}
        return Said(201, self.add_merge_request(branch, target=asked.body["target_branch"], **words))

    def _shown(self, number: int) -> dict[str, Any]:
        found = self.merge_requests[number]
        return {**found, "draft": found["title"].lower().startswith(_DRAFT)}

    def about(self, **more: Any) -> dict[str, Any]:
        """A payload of this project."""
        return {"project": {"git_http_url": f"https://gitlab.com/{self.repository}.git"}, **more}

    def post_webhook(
        self,
        client: httpx.Client,
        hook: str,
        payload: dict[str, Any],
        secret: str,
        *,
        url: str = "/webhooks/gitlab",
    ) -> httpx.Response:
        """Send a webhook to Ratchet, as GitLab would."""
        headers = {
            "Content-Type": "application/json",
            "X-Gitlab-Event": hook,
            "X-Gitlab-Token": secret,
            "Idempotency-Key": str(uuid.uuid4()),
        }
        return client.post(url, content=json.dumps(payload).encode(), headers=headers)
