"""docs/protocols.md and docs/projects.md tell of everything that they are the guides of."""

from __future__ import annotations

import re

import click
import pytest
from pydantic import BaseModel

from ratchet.cli.command import Command
from ratchet.config.sources import ALIASES, IGNORED
from ratchet.config.workflow_settings import Models, Projects, Protocols
from tests.cli.test_workflow_guide import DOCS, commands

GUIDES = {"protocol": (DOCS / "protocols.md").read_text(), "project": (DOCS / "projects.md").read_text()}
GUIDES |= {"step": GUIDES["protocol"], "spec": GUIDES["protocol"]}
BRANCHES = ["project", "protocol", "step", "spec"]


@pytest.mark.parametrize(
    ("branch", "wanted"),
    [
        (
            "project",
            "add list show onboard setup checks questions answer secrets branches delete-branch"
            " import-codemachine archive",
        ),
        ("protocol", "new list show start pause resume cancel run-next retry open-pr log"),
        ("step", "list show run qa approve"),
        ("spec", "validate audit schema"),
    ],
)
def test_there_is_a_command_for_everything_that_can_be_done(branch: str, wanted: str) -> None:
    assert list(commands(branch)) == wanted.split()


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_command_and_every_option_is_told(branch: str) -> None:
    guide = GUIDES[branch]
    table = guide.partition(f"| `ratchet {branch}` | does |")[2].partition("\n\n")[0]
    told = set(re.findall(r"(--[\w-]+)", guide))
    for name, command in commands(branch).items():
        assert re.search(rf"^\| `{name}\b", table, re.M) or f"### `ratchet {branch} {name} " in guide, name
        assert _options(command) <= told, name


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_command_has_examples_that_name_options_it_has(branch: str) -> None:
    for name, command in commands(branch).items():
        assert isinstance(command, Command)
        examples = [line for line in command.examples if f"ratchet {branch} {name}" in line]
        assert examples, name
        used = {word for line in examples for word in re.findall(r"(?<=\s)--[\w-]+", line)}
        assert used <= {*_options(command), "--json"}, name


@pytest.mark.parametrize(
    ("guide", "prefix", "section"),
    [
        ("protocol", "protocols", Protocols),
        ("protocol", "protocols.models", Models),
        ("project", "projects", Projects),
    ],
)
def test_every_setting_is_told_as_it_is(guide: str, prefix: str, section: type[BaseModel]) -> None:
    row = rf"^\| `{re.escape(prefix)}\.(\w+)` \| (?:`([^`]*)` )?\| (.+) \|$"
    told = {name: (default, meaning) for name, default, meaning in re.findall(row, GUIDES[guide], flags=re.M)}
    assert told == {
        name: (_shown(field.default), field.description)
        for name, field in section.model_fields.items()
        if name != "models"
    }


def test_every_other_name_of_a_variable_is_told() -> None:
    told = dict(re.findall(r"^\| `([A-Z_]+)` \| (.+) \|$", GUIDES["project"], flags=re.M))
    assert told == {**{name: f"`{'.'.join(alias.key)}`" for name, alias in ALIASES.items()}, **IGNORED}


@pytest.mark.parametrize("guide", ["protocol", "project"])
def test_every_page_that_is_linked_is_there(guide: str) -> None:
    links = set(re.findall(r"\]\(([\w/-]+\.md)", GUIDES[guide]))
    assert len(links) >= 4
    assert [link for link in links if not (DOCS / link).is_file()] == []


def _options(command: click.Command) -> set[str]:
    return {
        each
        for option in command.params
        for each in (*option.opts, *option.secondary_opts)
        if each.startswith("--")
    }


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
