"""The reference is made of the code, and is what the code says now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ratchet.cli.program import root
from ratchet.cli.reference.files import PAGES, write_pages
from ratchet.cli.reference.manual import every_command
from ratchet.config.schema import leaves
from ratchet.config.sources import dotted, variable
from tests.cli.program import SOURCE

REFERENCE = SOURCE.parent / "docs" / "reference"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with everything that is made of the code."""
    directory = tmp_path_factory.mktemp("reference")
    assert {path.name for path in write_pages(directory)} == {*PAGES}
    return directory


@pytest.mark.soak
@pytest.mark.parametrize("kept", [REFERENCE / name for name in PAGES], ids=lambda path: path.name)
def test_what_is_made_of_the_code_is_up_to_date(made: Path, kept: Path) -> None:
    text = (made / kept.name).read_text()
    assert text == kept.read_text(), f"{kept.name} is out of date: run `make docs`"
    assert str(SOURCE) not in text


def test_every_command_has_its_section() -> None:
    told = set(re.findall(r"^##+ (ratchet .*)$", (REFERENCE / "cli.md").read_text(), re.M))
    assert told == {each.name for each in every_command(root) if each.name != root.name}


def test_every_key_is_told_with_its_variable() -> None:
    page = (REFERENCE / "configuration.md").read_text()
    for leaf in leaves():
        assert f"| `{dotted(leaf.key)}` |" in page
        assert f"`{variable(leaf.key)}`" in page


def test_every_request_says_what_it_does_and_who_may_ask() -> None:
    page = (REFERENCE / "api.md").read_text()
    rows = re.findall(r"^\| \[`([A-Z]+ /\S*)`\]\(#(\S+)\) \| (.*?) \| (.*?) \|$", page, re.M)
    assert len(rows) > 100
    for request, _anchor, who, what in rows:
        assert f"\n### {request}\n" in page, request
        assert who.startswith(("anybody", "the operator")), request
        assert what, f"{request} has no docstring"
