"""The page of the architecture names files: each must be there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE)))


def test_every_file_that_the_page_names_exists() -> None:
    assert len(NAMED) > 30
    assert [name for name in NAMED if not (ROOT / "src" / "ratchet" / name).is_file()] == []


def test_each_way_through_a_flow_is_under_ten_files() -> None:
    ways = re.findall(r"^## \w+: .*?\n\n(.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    assert len(ways) == 4
    assert all(len(re.findall(r"`[\w/]+\.py`", way)) < 10 for way in ways)


def test_each_step_of_a_way_begins_where_the_page_says() -> None:
    rows = re.findall(r"^\| [^|]* \| ([^|]*) \| (`\w[^|]*`) \|$", PAGE, re.MULTILINE)
    assert len(rows) > 14
    for files, names in rows:
        text = "".join(
            (ROOT / "src" / "ratchet" / file).read_text() for file in re.findall(r"[\w/]+\.py", files)
        )
        missing = [
            name
            for name in re.findall(r"\w+", names)
            if not re.search(rf"^(async )?(def|class) {name}\b", text, re.M)
        ]
        assert missing == [], files
