"""docs/agents.md tells of everything that it is the guide of."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest

from ratchet.agents.access import OPERATIONS as ACCESS_OPERATIONS
from ratchet.agents.architect import AgentRequest
from ratchet.agents.contract import Severity
from ratchet.agents.judge_operations import OPERATIONS as JUDGE_OPERATIONS
from ratchet.agents.operations import OPERATIONS as AGENT_OPERATIONS
from ratchet.agents.production_operations import OPERATIONS as PRODUCTION_OPERATIONS
from ratchet.agents.staging_area import Decision
from ratchet.agents.views import ListedVersion, WholeAgent
from ratchet.cli.catalogue import CATALOGUE, Branch
from ratchet.cli.command import Command, LazyGroup
from ratchet.config.workflow_settings import Agents
from ratchet.ledger.agents import AgentStatus, VersionStatus
from ratchet.operations import Operation

DOCS = Path(__file__).parents[2] / "docs"
GUIDE = (DOCS / "agents.md").read_text()
OPERATIONS = (*AGENT_OPERATIONS, *JUDGE_OPERATIONS, *PRODUCTION_OPERATIONS, *ACCESS_OPERATIONS)
PLACES = {"{name}": "NAME", "{version}": "VERSION"}
ROUTES = [(each.method, each.path) for each in OPERATIONS if each.path.startswith("/agents")]


def plain(path: str) -> str:
    for place, word in PLACES.items():
        path = path.replace(place, word)
    return re.sub(r"\{(\w+?)(_id)?\}", lambda place: place[1].upper(), path)


def commands() -> dict[str, click.Command]:
    branch = CATALOGUE["agent"]
    assert isinstance(branch, Branch)
    group = LazyGroup(branch.parts, name="agent")
    found = {name: group.get_command(click.Context(group), name) for name in branch.parts}
    for inner in [each for each in found.values() if isinstance(each, LazyGroup)]:
        own = str(inner.name)
        del found[own]
        found |= {f"{own} {name}": inner.get_command(click.Context(inner), name) for name in inner.parts}
    return {name: command for name, command in found.items() if command is not None}


def words(text: str) -> set[str]:
    return set(re.findall(r"`([\w.]+)`", text))


def test_there_is_a_command_for_everything_that_can_be_done() -> None:
    wanted = {each.name.removeprefix("agent ") for each in OPERATIONS if each.name.startswith("agent ")}
    # Looks that a command has as options, and an export to a directory of one's own.
    assert set(commands()) ^ wanted == {"history", "restore", "runs", "unpin", "version", "export"}


def test_every_command_and_every_option_is_told() -> None:
    told = set(re.findall(r"(--[\w-]+)", GUIDE))
    for name, command in commands().items():
        assert re.search(rf"(ratchet agent |\| `){name}\b", GUIDE), name
        options = {each for option in command.params for each in option.opts if each.startswith("--")}
        assert options <= told, name


def test_every_command_has_examples_that_name_options_it_has() -> None:
    for name, command in commands().items():
        assert isinstance(command, Command)
        examples = [line for line in command.examples if f"ratchet agent {name}" in line]
        assert examples, name
        known = {each for option in command.params for each in (*option.opts, "--json")}
        used = {word for line in examples for word in re.findall(r"(?<=\s)--[\w-]+", line)}
        assert used <= known, name


@pytest.mark.parametrize(("method", "path"), sorted(ROUTES))
def test_every_request_is_told(method: str, path: str) -> None:
    assert f"| `{method} {plain(path)}` |" in GUIDE


def test_no_request_is_told_that_there_is_not() -> None:
    told = set(re.findall(r"^\| `([A-Z]+) (/\S+)` \|", GUIDE, flags=re.M))
    assert told == {(method, plain(path)) for method, path in ROUTES}


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.method == "POST"],
    ids=lambda each: each.name,
)
def test_every_field_of_a_request_is_told(operation: Operation[..., Any]) -> None:
    over_http = GUIDE[GUIDE.index("## Over HTTP") :].partition("## What happened")[0]
    assert set(operation.parameters) - {"name", *operation.places} <= words(over_http)


def test_every_field_of_what_is_wanted_can_be_given_on_the_command_line() -> None:
    given = {option.name for option in commands()["create"].params}
    assert {each.name for each in fields(AgentRequest)} - {"description"} <= given
    assert "what" in given


def test_every_key_of_an_agent_and_of_a_version_is_told() -> None:
    as_json = GUIDE[GUIDE.index("## `--json`") :].partition("## Over HTTP")[0]
    assert {each.name for each in (*fields(WholeAgent), *fields(ListedVersion))} <= words(as_json)


def test_every_word_for_a_status_a_decision_and_a_severity_is_told() -> None:
    statuses = {str(status) for status in (*AgentStatus, *VersionStatus)} - {"deleted"}
    assert statuses | {str(each) for each in Decision} <= words(GUIDE)
    assert r"\|".join(Severity) in GUIDE


def test_every_setting_is_told_as_it_is() -> None:
    rows = re.findall(r"^\| `agents\.(\w+)` \| (?:`([^`]*)` )?\| (.+) \|$", GUIDE, flags=re.M)
    assert {name: (default, meaning) for name, default, meaning in rows} == {
        name: (_shown(field.default), field.description) for name, field in Agents.model_fields.items()
    }


def test_every_page_that_it_links_is_there() -> None:
    links = set(re.findall(r"\]\(([\w/-]+\.md)\)", GUIDE))
    assert "agents-versions.md" in links
    assert [link for link in links if not (DOCS / link).is_file()] == []


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
