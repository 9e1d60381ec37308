"""Pictures of the console for the README, by the same browser and on the same pages as its tests.

python -m tests.server.console.pictures docs/pictures
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.server.console.chromium import ARGUMENTS, chromium
from tests.server.console.demonstrated import demonstrated
from tests.server.console.visitor import Visitor

# A list, and which of its rows: of several the first that was made, since the workflow's second run is from the cache.
WANTED = {
    "research": ("/research", "circles"),
    "protocol": ("/protocols", "discounts"),
    "workflow": ("/workflows/runs", "demo_collatz"),
}


def main(directory: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        demonstrated(Path(home)) as (url, token),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        context = browser.new_context(viewport={"width": 1280, "height": 860})
        context.set_default_timeout(60_000)
        take(Visitor(context, url, token), directory)
        browser.close()


def take(visitor: Visitor, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, (path, row) in WANTED.items():
        link = visitor.open(path).get_by_role("row", name=row).last.get_by_role("link").first
        shown = link.get_attribute("href")
        assert shown is not None
        visitor.open(shown.removeprefix("/console")).screenshot(path=directory / f"{name}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
