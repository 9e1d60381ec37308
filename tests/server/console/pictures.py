"""Pictures of the console for the README, by the same browser and on the same pages as its tests.

python -m tests.server.console.pictures docs/pictures
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.server.console.chromium import ARGUMENTS, chromium
from tests.server.console.demonstrated import demonstrated
from tests.server.console.tour import Tour
from tests.server.console.visitor import Visitor

# The first page whose address fits is taken.
WANTED = {
    "research": r"/research/\d+",
    "protocol": r"/protocols/\d+",
    "workflow": r"/workflows/runs/\d+",
}


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    wanted = dict(WANTED)
    with (
        tempfile.TemporaryDirectory() as home,
        demonstrated(Path(home)) as (url, token),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(ARGUMENTS))
        visitor = Visitor(browser.new_context(viewport={"width": 1280, "height": 860}), url, token)
        for path in Tour(visitor):
            for name, pattern in list(wanted.items()):
                if re.fullmatch(pattern, path):
                    del wanted[name]
                    visitor.page.screenshot(path=directory / f"{name}.png")
            if not wanted:
                break
        browser.close()
    if wanted:
        sys.exit(f"no page for {', '.join(wanted)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
