"""GitHub as far as it is needed: pull requests, checks, and webhooks that are really signed."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Callable, Collection
from typing import Any

import httpx

from tests.forges.stand_in import Asked, Said, StandIn

_PULLS = re.compile(r"/repos/([^/]+/[^/]+)/pulls(?:/(\d+))?")
_CHECKS = re.compile(r"/repos/[^/]+/[^/]+/commits/([0-9a-f]+)/(check-runs|status)")
WHEN = "2025-03-01T12:00:00Z"


class GitHubStandIn(StandIn):
    """One repository. `branches` tells which branches there are, for instance those of a real bare repository."""

    def __init__(
        self, repository: str = "acme/demo", *, branches: Callable[[], Collection[str]] | None = None
    ) -> None:
        super().__init__()
        self.repository = repository
        self.branches = branches
        self.drafts = True
        self.pulls: dict[int, dict[str, Any]] = {}
        self.check_runs: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []

    def add_pull(
        self, branch: str, *, base: str = "main", fork: str | None = None, **more: Any
    ) -> dict[str, Any]:
        number = len(self.pulls) + 1
        self.pulls[number] = {
            "number": number,
            "node_id": f"PR_{number}",
            "html_url": f"https://github.com/{self.repository}/pull/{number}",
            "state": "open",
            "draft": False,
            "merged_at": None,
            "title": f"pull {number}",
            "head": {"ref": branch, "repo": {"full_name": fork or self.repository}},
            "base": {"ref": base, "repo": {"full_name": self.repository}},
            **more,
        }
        return self.pulls[number]

    def answer(self, asked: Asked) -> Said:
        if asked.path == "/graphql":
            return self._graphql(asked.body)
        if found := _PULLS.fullmatch(asked.path):
            if found[1].lower() != self.repository.lower():
                return Said(404, {"message": "Not Found"})
            return self._pulls(asked, int(found[2]) if found[2] else None)
        if found := _CHECKS.fullmatch(asked.path):
            by_runs = {"check_runs": [each for each in self.check_runs if each["head_sha"] == found[1]]}
            return Said(200, by_runs if found[2] == "check-runs" else {"statuses": self.statuses})
        return Said(404, {"message": "Not Found"})

    def _pulls(self, asked: Asked, number: int | None) -> Said:
        if number is not None:
            pull = self.pulls.get(number)
            if pull is None:
                return Said(404, {"message": "Not Found"})
            if asked.method == "PATCH":
                pull.update(asked.body)
            return Said(200, pull)
        if asked.method == "GET":
            head = asked.query.get("head", "").partition(":")[2]
            return Said(
                200, [each for each in self.pulls.values() if not head or each["head"]["ref"] == head]
            )
        return self._open(asked.body)

    def _open(self, wanted: dict[str, Any]) -> Said:
        def refuse(message: str) -> Said:
            return Said(422, {"message": "Validation Failed", "errors": [{"message": message}]})

        branch = wanted["head"]
        if self.branches is not None and branch not in self.branches():
            return Said(
                422, {"message": "Validation Failed", "errors": [{"field": "head", "code": "invalid"}]}
            )
        if any(each["head"]["ref"] == branch and each["state"] == "open" for each in self.pulls.values()):
            return refuse(f"A pull request already exists for {branch}.")
        if wanted.get("draft") and not self.drafts:
            return refuse("Draft pull requests are not supported in this repository.")
        words = {"title": wanted["title"], "body": wanted["body"], "draft": wanted.get("draft", False)}
        return Said(201, self.add_pull(branch, base=wanted["base"], **words))

    def _graphql(self, asked: dict[str, Any]) -> Said:
        wanted = asked["variables"]["id"]
        for pull in self.pulls.values():
            if pull["node_id"] == wanted and "markPullRequestReadyForReview" in asked["query"]:
                pull["draft"] = False
                return Said(
                    200, {"data": {"markPullRequestReadyForReview": {"pullRequest": {"isDraft": False}}}}
                )
        return Said(200, {"data": None, "errors": [{"message": "Could not resolve to a node"}]})

    def about(self, **more: Any) -> dict[str, Any]:
        """A payload of this repository."""
        plain = {"full_name": self.repository, "clone_url": f"https://github.com/{self.repository}.git"}
        return {"repository": plain, **more}

    def workflow_run(
        self, branch: str, commit: str | None, conclusion: str | None, *, name: str = "CI", at: str = WHEN
    ) -> dict[str, Any]:
        found = {
            "name": name,
            "event": "push",
            "status": "completed" if conclusion else "in_progress",
            "conclusion": conclusion,
            "head_branch": branch,
            "head_sha": commit,
            "html_url": f"https://github.com/{self.repository}/actions/runs/1",
            "updated_at": at,
            "head_repository": {"full_name": self.repository},
        }
        return self.about(workflow_run=found)

    def check_run(
        self, branch: str, commit: str, conclusion: str | None, *, name: str, at: str = WHEN, said: str = ""
    ) -> dict[str, Any]:
        found = {
            "name": name,
            "status": "completed" if conclusion else "in_progress",
            "conclusion": conclusion,
            "head_sha": commit,
            "check_suite": {"head_branch": branch, "head_sha": commit},
            "html_url": f"https://github.com/{self.repository}/runs/1",
            "started_at": at,
            "completed_at": at if conclusion else None,
            "output": {"title": None, "summary": None, "text": said},
        }
        return self.about(check_run=found)

    def pull_request(self, number: int, action: str) -> dict[str, Any]:
        """A payload about a pull request as it is now."""
        pull = {**self.pulls[number], "merged": self.pulls[number]["merged_at"] is not None}
        return self.about(action=action, number=number, pull_request=pull)

    def merge(self, number: int) -> dict[str, Any]:
        self.pulls[number].update(state="closed", merged_at=WHEN, draft=False)
        return self.pull_request(number, "closed")

    def reject(self, number: int) -> dict[str, Any]:
        """Close it without merging it."""
        self.pulls[number].update(state="closed")
        return self.pull_request(number, "closed")

    @staticmethod
    def headers(event: str, body: bytes, secret: str, *, delivery: str | None = None) -> dict[str, str]:
        signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        return {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": delivery or str(uuid.uuid4()),
            "X-Hub-Signature-256": f"sha256={signature}",
        }

    def post_webhook(
        self,
        client: httpx.Client,
        event: str,
        payload: dict[str, Any],
        secret: str,
        *,
        delivery: str | None = None,
        url: str = "/webhooks/github",
    ) -> httpx.Response:
        """Send a webhook to Ratchet, as GitHub would."""
        body = json.dumps(payload).encode()
        return client.post(url, content=body, headers=self.headers(event, body, secret, delivery=delivery))
