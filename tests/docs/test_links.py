"""Every link within the documentation leads somewhere, and every page can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import DOCS, anchors, links, name, pages

INDEX = DOCS / "README.md"


def targets(page: Path) -> list[tuple[Path, str]]:
    """The files of this repository that a page leads to, each with the anchor in it."""
    found = []
    for link in links(page.read_text()):
        path, _, anchor = link.partition("#")
        if "://" not in link and not link.startswith("mailto:"):
            found.append(((page.parent / path).resolve() if path else page, anchor))
    return found


@pytest.mark.parametrize("page", pages(), ids=name)
def test_every_link_of_the_page_leads_somewhere(page: Path) -> None:
    assert [str(path) for path, _ in targets(page) if not path.exists()] == []
    named = {(path, anchor) for path, anchor in targets(page) if anchor and path.suffix == ".md"}
    astray = [f"{path.name}#{anchor}" for path, anchor in named if anchor not in anchors(path.read_text())]
    assert astray == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, ahead = {INDEX}, [INDEX]
    while ahead:
        for path, _ in targets(ahead.pop()):
            if path.suffix == ".md" and path.is_relative_to(DOCS) and path.is_file() and path not in reached:
                reached.add(path)
                ahead.append(path)
    assert sorted(name(page) for page in set(DOCS.rglob("*.md")) - reached) == []


def test_the_index_itself_names_every_page_but_the_decisions() -> None:
    named = {path for path, _ in targets(INDEX)}
    pages_of_the_docs = {page for page in DOCS.rglob("*.md") if page.parent.name != "decisions"} - {INDEX}
    assert sorted(name(page) for page in pages_of_the_docs - named) == []


def test_headings_are_anchors_as_forges_make_them() -> None:
    text = "# One two\n\n## `--json`: *what*\n\n## [Linked](x.md) too\n\n## One two\n\n```\n# none\n```\n"
    assert anchors(text) == {"one-two", "--json-what", "linked-too", "one-two-1"}
