"""The console behind a real server, visited by a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect, sync_playwright

from tests.server.conftest import (  # noqa: F401
    TOKEN,
    api,
    ledger,
    listening_to,
    loaded,
    runtime,
    url,
    worker,
    working_api,
)
from tests.server.console.chromium import ARGUMENTS, chromium
from tests.server.console.visitor import Visitor

# How long a page takes depends on what else the machine does.
expect.set_options(timeout=60_000)


@pytest.fixture
def visitor_client(api: TestClient) -> TestClient:  # noqa: F811
    """The console without a browser, for what can be seen in its answers: somebody who came in."""
    client = TestClient(api.app, headers={"Accept": "text/html"})
    assert client.get(f"/console/enter?token={TOKEN}", follow_redirects=False).status_code == 303
    return client


# Not for all tests of a process: while it is open, its event loop counts as running in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture
def site(api: TestClient) -> Iterator[httpx.Client]:  # noqa: F811
    with listening_to(api) as client:
        yield client


@pytest.fixture
def visitor(browser: Browser, site: httpx.Client) -> Iterator[Visitor]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    yield Visitor(context, str(site.base_url).rstrip("/"), TOKEN)
    context.close()
