"""Projects, protocols and steps for the tests of the API, made over the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from tests.protocols.world import git, make_remote

NOWHERE = "https://git.example.org/team/nothing.git"


def ok(answer: Any) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def new_project(api: TestClient, name: str = "shop", **more: Any) -> int:
    body = {"name": name, "git_url": NOWHERE, **more}
    number: int = ok(api.post("/projects", json=body))["id"]
    return number


def new_protocol(api: TestClient, project: int, name: str = "0001-change", **more: Any) -> int:
    body = {"protocol_name": name, "automatic": False, **more}
    number: int = ok(api.post(f"/projects/{project}/protocols", json=body))["id"]
    return number


def new_step(api: TestClient, protocol: int, index: int = 0, name: str = "", **more: Any) -> int:
    body = {"step_index": index, "step_name": name or f"{index:02d}-part", "step_type": "work", **more}
    number: int = ok(api.post(f"/protocols/{protocol}/steps", json=body))["id"]
    return number


def checked_out(home: Path) -> tuple[Path, Path]:
    """A repository with a bare remote: where it lies, and the remote."""
    remote, local = make_remote(home), home / "checkout"
    git(home, "clone", "-q", str(remote), str(local))
    return local, remote
