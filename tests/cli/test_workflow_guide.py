"""docs/workflows.md and docs/tools.md tell of everything that they are the guides of."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from pydantic import BaseModel

from ratchet.cli.catalogue import CATALOGUE, Branch
from ratchet.cli.command import Command, LazyGroup
from ratchet.config.workflow_settings import Evolution, McpToolServer, Tools, Workflows
from ratchet.operations import Operation
from ratchet.server.routes import flows
from ratchet.tools import operations as tools
from ratchet.tools.definition import CALLABLE, Body, Constraints, Tool
from ratchet.workflows import operations as workflows
from ratchet.workflows import tool_operations

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = {"workflow": (DOCS / "workflows.md").read_text(), "tool": (DOCS / "tools.md").read_text()}
OPERATIONS: list[tuple[str, Operation[..., Any]]] = [
    *(("workflow", each) for each in workflows.OPERATIONS),
    *(("tool", each) for each in (*tools.OPERATIONS, *tool_operations.OPERATIONS)),
]
ROUTES = [
    (name, method, path.replace("{name}", "NAME").replace("{tool}", "TOOL").replace("{run_id}", "RUN"))
    for name, method, path in (
        ("workflow", "GET", "/workflows/schema"),
        ("workflow", "POST", "/workflows/{name}/export"),
        *((name, each.method, each.path) for name, each in OPERATIONS),
    )
]
# What a tool knows that no definition says: where it lies, what it was made of, and what nobody has asked for.
NO_KEYS = {"extra", "folder", "files", "warnings", "capabilities"}
BODIES: list[tuple[str, set[str]]] = [
    ("workflow", set(flows.Export.model_fields)),
    *(
        (name, {each for each in operation.parameters if f"{{{each}}}" not in operation.path})
        for name, operation in OPERATIONS
        if operation.method == "POST"
    ),
]


def commands(branch_name: str) -> dict[str, click.Command]:
    branch = CATALOGUE[branch_name]
    assert isinstance(branch, Branch)
    group = LazyGroup(branch.parts, name=branch_name)
    found = {name: group.get_command(click.Context(group), name) for name in branch.parts}
    return {name: command for name, command in found.items() if command is not None}


def words(text: str) -> set[str]:
    return set(re.findall(r"`([\w.]+)`", text))


@pytest.mark.parametrize(
    ("branch", "wanted"),
    [
        ("workflow", "new validate fill plan run show list save delete profile evolve export schedule"),
        (
            "tool",
            "list show search run test add versions pin unpin rollback approve certificate score feedback",
        ),
    ],
)
def test_there_is_a_command_for_everything_that_can_be_done(branch: str, wanted: str) -> None:
    assert list(commands(branch)) == wanted.split()


@pytest.mark.parametrize("branch", ["workflow", "tool"])
def test_every_command_and_every_option_is_told(branch: str) -> None:
    guide = GUIDES[branch]
    told = set(re.findall(r"(--[\w-]+)", guide))
    for name, command in commands(branch).items():
        assert re.search(rf"(ratchet {branch} |[|,] `){name}\b", guide), name
        options = {
            each
            for option in command.params
            for each in (*option.opts, *option.secondary_opts)
            if each.startswith("--")
        }
        assert options <= told, name


@pytest.mark.parametrize("branch", ["workflow", "tool"])
def test_every_command_has_examples_that_name_options_it_has(branch: str) -> None:
    for name, command in commands(branch).items():
        assert isinstance(command, Command)
        examples = [line for line in command.examples if f"ratchet {branch} {name}" in line]
        assert examples, name
        known = {
            each for option in command.params for each in (*option.opts, *option.secondary_opts, "--json")
        }
        used = {word for line in examples for word in re.findall(r"(?<=\s)--[\w-]+", line)}
        assert used <= known, name


@pytest.mark.parametrize(("guide", "method", "path"), sorted(ROUTES))
def test_every_request_is_told(guide: str, method: str, path: str) -> None:
    assert f"| `{method} {path}` |" in GUIDES[guide]


def test_no_request_is_told_that_there_is_not() -> None:
    told = {
        (guide, *row)
        for guide, text in GUIDES.items()
        for row in re.findall(r"^\| `([A-Z]+) (/\S+)` \|", text, flags=re.M)
    }
    assert told == set(ROUTES)


@pytest.mark.parametrize(("guide", "taken"), BODIES)
def test_every_field_of_a_request_is_told(guide: str, taken: set[str]) -> None:
    over_http = GUIDES[guide].partition("## Over HTTP")[2].partition("## Settings")[0]
    assert taken <= words(over_http)


@pytest.mark.parametrize(
    ("guide", "shape"),
    [
        *(
            ("workflow", each)
            for each in (
                workflows.OutcomeAnswer,
                workflows.WorkflowStepAnswer,
                workflows.ListedWorkflowAnswer,
                workflows.WholeWorkflowAnswer,
            )
        ),
        *(
            ("tool", each)
            for each in (
                tools.WholeToolAnswer,
                tools.ToolChoiceAnswer,
                tool_operations.ToolCallAnswer,
                tools.ToolVersionAnswer,
            )
        ),
    ],
)
def test_every_key_is_told(guide: str, shape: type) -> None:
    as_json = GUIDES[guide].partition("## `--json`")[2].partition("## Over HTTP")[0]
    assert {each.name for each in fields(shape)} <= words(as_json)


def test_every_key_of_a_definition_is_told() -> None:
    told = words(GUIDES["tool"].partition("## The definition")[2].partition("## Versions")[0])
    assert {str(each) for each in CALLABLE} <= told
    keys = {field.name for kind in (Tool, Constraints, *get_args(Body)) for field in fields(kind)}
    assert keys - NO_KEYS <= told


@pytest.mark.parametrize(
    ("guide", "prefix", "section"),
    [
        ("workflow", "workflows", Workflows),
        ("workflow", "workflows.evolution", Evolution),
        ("tool", "tools", Tools),
        ("tool", "tools.mcp.SERVER", McpToolServer),
    ],
)
def test_every_setting_is_told_as_it_is(guide: str, prefix: str, section: type[BaseModel]) -> None:
    row = rf"^\| `{re.escape(prefix)}\.(\w+)` \| (?:`([^`]*)` )?\| (.+) \|$"
    told = {name: (default, meaning) for name, default, meaning in re.findall(row, GUIDES[guide], flags=re.M)}
    tables = {"evolution", "mcp"}
    assert told == {
        name: (_shown(field.default), field.description)
        for name, field in section.model_fields.items()
        if name not in tables
    }


@pytest.mark.parametrize("guide", ["workflow", "tool"])
def test_every_page_that_is_linked_is_there(guide: str) -> None:
    links = set(re.findall(r"\]\(([\w/-]+\.md)\)", GUIDES[guide]))
    assert len(links) >= 4
    assert [link for link in links if not (DOCS / link).is_file()] == []


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
