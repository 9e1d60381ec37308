"""docs/research.md tells of everything that it is the guide of."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from ratchet.cli.catalogue import CATALOGUE, Branch
from ratchet.cli.commands.research import run
from ratchet.config.keys import Research
from ratchet.kernel import TrialStatus
from ratchet.research.start import ResearchRequest
from ratchet.server.routes import flows

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "research.md").read_text()
TOLD_ELSEWHERE = {"new", "check"}


def test_every_option_of_a_run_is_told() -> None:
    names = {name for option in run.params for name in option.opts if name.startswith("--")}
    rows = set(re.findall(r"`(--[\w-]+)", GUIDE))
    assert names <= rows


def test_every_command_is_told() -> None:
    branch = CATALOGUE["research"]
    assert isinstance(branch, Branch)
    for name in branch.parts.keys() - TOLD_ELSEWHERE:
        assert re.search(rf"(ratchet research |\| `){name}\b", GUIDE), name


def test_every_status_of_a_trial_is_told() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", GUIDE, flags=re.M)) >= {str(status) for status in TrialStatus}


def test_every_field_of_a_start_over_http_is_told() -> None:
    told = GUIDE[GUIDE.index("The body has the options") :].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", told)) >= {each.name for each in fields(ResearchRequest)}


@pytest.mark.parametrize("path", sorted({each.path for each in flows.research.routes}))  # type: ignore[attr-defined]
def test_every_address_is_told(path: str) -> None:
    plain = path.replace("{run}", "RUN").replace("{exp}", "EXP")
    head, _, last = plain.rpartition("/")
    assert plain in GUIDE or (head == "/research/RUN" and f"`{last}`" in GUIDE)


def test_every_setting_that_it_names_is_one() -> None:
    named = set(re.findall(r"`research\.(\w+)`", GUIDE))
    assert named
    assert named <= set(Research.model_fields)


def test_every_page_that_it_links_is_there() -> None:
    links = set(re.findall(r"\]\(([\w-]+\.md)\)", GUIDE))
    assert {f"research-{name}.md" for name in ("tasks", "keeping", "check", "exchange")} <= links
    assert [link for link in links if not (DOCS / link).is_file()] == []
