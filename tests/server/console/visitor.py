"""Somebody in front of the console, with a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import axe_playwright_python
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
_SERIOUS = ["serious", "critical"]
_AXE_RUN = """async ([rules, serious]) => {
  const found = await axe.run(document, {runOnly: rules, resultTypes: ["violations"]});
  return found.violations.filter(each => serious.includes(each.impact));
}"""


class Visitor:
    """Opens pages, and holds everything against them that a browser complains about."""

    def __init__(self, context: BrowserContext, url: str, token: str) -> None:
        self.url, self.context = url, context
        self.complaints: list[str] = []
        self.page: Page = context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(f"{url}/console/enter?token={token}")
        self.page.wait_for_url(f"{url}/console/")

    def open(self, path: str = "/") -> Page:
        """A page of the console, ready and listening for changes if it is one that changes."""
        self.page.goto(f"{self.url}/console{path}")
        if self.page.locator("[data-live]").count():
            self.page.wait_for_selector("body.is-live", state="attached")
        return self.page

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def check(self) -> None:
        """Nothing was complained about, and everybody can use the page."""
        assert self.complaints == [], self.page.url
        assert self.findings() == []
        self.check_width()

    def check_width(self) -> None:
        assert not self.page.evaluate("document.documentElement.scrollWidth > innerWidth"), (
            f"{self.page.url} is wider than the window"
        )

    def findings(self) -> list[str]:
        """What axe holds to be serious, in both themes."""
        found = []
        for theme in ("light", "dark"):
            self.page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
            found += self._findings(theme)
        return found

    def phone(self, then: Callable[[], None] | None = None) -> None:
        """The same on a narrow screen."""
        self.page.set_viewport_size({"width": 390, "height": 844})
        (then or self.check)()
        self.page.set_viewport_size({"width": 1280, "height": 900})

    def _findings(self, theme: str) -> list[str]:
        # Run from outside, past the page's policy, which would refuse it.
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE.read_text() + "; 0")
        found: list[dict[str, Any]] = self.page.evaluate(_AXE_RUN, [_RULES, _SERIOUS])
        return [
            f"{self.page.url} ({theme}): {each['id']}: {node['target']} {node['html'][:200]} {node['failureSummary']}"
            for each in found
            for node in each["nodes"]
        ]

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} ({message.location.get('url')})")
