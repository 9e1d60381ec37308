"""The demo, and then every page of the console that links lead to, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.server.console.demonstrated import demonstrated
from tests.server.console.tour import PAGES, Tour
from tests.server.console.visitor import Visitor

# Pages that no link leads to after the demo; each has a test of its own.
ELSEWHERE = {"/agents/{name}/approvals/{approval_id}", "/tools/{tool}/examples", "/workflows/{name:path}"}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_every_page_of_the_menu_can_be_used_where_nothing_was_done_yet(visitor: Visitor) -> None:
    tour = Tour(visitor)
    for _ in tour:
        visitor.check()
    assert {"/", "/agents", "/research", "/workflows", "/protocols", "/events", "/settings"} <= tour.seen


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_page_can_be_reached_and_used_after_the_demo(browser: Browser, tmp_path: Path) -> None:
    with demonstrated(tmp_path / "home") as (url, token):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.set_default_timeout(60_000)
        visitor = Visitor(context, url, token)
        tour = Tour(visitor)
        for _ in tour:
            visitor.check()
            visitor.phone(lambda: visitor.check_width())
        context.close()
    assert PAGES - tour.seen == ELSEWHERE
