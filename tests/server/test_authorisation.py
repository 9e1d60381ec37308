"""Nothing but health, metrics and the description is told to one without the token."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.runtime import Runtime
from tests.server.conftest import TOKEN, client_of

# Nothing here depends on the database.
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


@pytest.fixture
def stranger(runtime: Runtime, loaded: Loaded) -> TestClient:
    return client_of(runtime, loaded, token=None)


OPEN = {"/health", "/health/live", "/health/ready", "/metrics"}
# These want a signature, and so does their own test.
SIGNED = {"/webhooks/github", "/webhooks/gitlab"}


@pytest.mark.soak
def test_every_other_path_wants_the_token(stranger: TestClient) -> None:
    paths = stranger.get("/openapi.json").json()["paths"]
    guarded = [(path, method) for path in paths.keys() - OPEN - SIGNED for method in paths[path]]
    assert len(guarded) > 20
    for path, method in guarded:
        answer = stranger.request(method, path.replace("{", "").replace("}", ""))
        assert answer.status_code == 401, path
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", sorted(OPEN))
def test_the_open_paths_do_not(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code in (200, 503)


@pytest.mark.parametrize(
    "path", ["/health/", "//health", "/health/live/x", "/docs/../runs", "/nowhere", "/HEALTH"]
)
def test_a_path_that_only_looks_open_is_not(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code in (401, 404)
    assert stranger.get(path).json()["status"] == 401


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer wrong",
        b"Basic " + TOKEN.encode(),
        TOKEN.encode(),
        b"Bearer \xc3\xa4\xff",
    ],
)
def test_anything_but_the_token_is_refused(stranger: TestClient, header: bytes) -> None:
    assert stranger.get("/runs", headers={b"Authorization": header}).status_code == 401


def test_the_scheme_is_not_case_sensitive(stranger: TestClient) -> None:
    assert stranger.get("/runs", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200


def test_an_unread_body_is_not_looked_at_without_the_token(stranger: TestClient) -> None:
    assert stranger.post("/schedules", content=b"{" * 1000).status_code == 401
