"""Manual pages are what `man` can read."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from ratchet.cli.command import Command
from ratchet.cli.program import root
from ratchet.cli.reference.manual import Documented, every_command, manual_page
from tests.cli.conftest import Ratchet

REQUESTS = {".TH", ".SH", ".PP", ".TP", ".nf", ".fi"}
ESCAPES = {"\\f", "\\-", "\\e", "\\&"}


def test_every_command_has_a_page_in_which_nothing_is_taken_for_something_else() -> None:
    for each in every_command(root):
        page = manual_page(each)
        for line in page.splitlines():
            assert not line.startswith("'"), (each.name, line)
            assert not line.startswith(".") or line.split()[0] in REQUESTS, (each.name, line)
            assert set(re.findall(r"\\.", line)) <= ESCAPES, (each.name, line)
        assert page.startswith('.TH "RATCHET')
        sections = re.findall(r"^\.SH (.*)$", page, re.M)
        assert sections[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"], each.name
        assert "EXIT STATUS" in sections
        assert ("EXAMPLES" in sections) == bool(each.examples)


def test_dots_quotes_and_dashes_of_a_text_stay_what_they_are() -> None:
    strange = Command("strange", help="Begin.\n\n.ratchet is \\home\\.\n\n'quoted' --home")
    page = manual_page(Documented(strange, click.Context(strange, info_name="strange")))
    assert {"\\&.ratchet is \\ehome\\e.", "\\&'quoted' \\-\\-home"} <= set(page.splitlines())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_one_page_is_printed_and_all_of_them_are_written(ratchet: Ratchet, tmp_path: Path) -> None:
    shown = ratchet("man", "runs", "show")
    assert (shown.code, shown.err) == (0, "")
    assert '.TH "RATCHET\\-RUNS\\-SHOW" "1"' in shown.out
    written = ratchet("man", "--out", str(tmp_path / "man1"), "--json")
    assert (tmp_path / "man1" / "ratchet-runs-show.1").read_text() == shown.out
    assert len(written.json["pages"]) == sum(1 for _ in every_command(root))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_page_of_what_there_is_not_is_misuse(ratchet: Ratchet) -> None:
    done = ratchet("man", "runs", "shwo")
    assert done.code == 2
    assert done.err == (
        "error: there is no command 'runs shwo'\nhint: `ratchet runs --help` lists what there is\n"
    )
