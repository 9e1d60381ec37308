"""Tools that travel inside a workflow."""

from __future__ import annotations

import pytest

from ratchet.flowkit.spec import ToolDefinition
from ratchet.tools.definition import LlmBody, OpenApiBody, PythonBody, ToolType, tool_from_definition
from ratchet.tools.definition_file import ToolError


def test_a_model_travels_with_its_prompt() -> None:
    tool = tool_from_definition(
        ToolDefinition("writer", "Writer", "writes", model="gpt-4", system_prompt="be brief", timeout=30)
    )

    assert (tool.id, tool.name, tool.type, tool.timeout) == ("writer", "Writer", ToolType.LLM, 30)
    assert tool.llm == LlmBody(model="gpt-4", system_prompt="be brief", temperature=0.7)


def test_code_travels_with_what_it_needs() -> None:
    tool = tool_from_definition(
        ToolDefinition(
            "count",
            tool_type="python",
            source_code="def run(): return 1",
            requirements=("attrs",),
            fallback_tool="other",
            extra={"input_schema": {"a": "string"}, "examples": [{"input": {"a": "x"}, "output": 1}]},
        )
    )

    assert tool.python == PythonBody("def run(): return 1")
    assert (tool.requirements, tool.fallback_tool, len(tool.examples)) == (("attrs",), "other", 1)


@pytest.mark.parametrize(
    ("spec", "body"),
    [
        ({"paths": {"/a": {}}}, OpenApiBody(spec={"paths": {"/a": {}}}, base_url="http://h")),
        ({"operation": "get"}, OpenApiBody(operation="get", base_url="http://h")),
    ],
)
def test_a_service_travels_with_its_description(spec: dict[str, object], body: OpenApiBody) -> None:
    definition = ToolDefinition("web", tool_type="api", api_spec=spec, endpoint="http://h")

    assert tool_from_definition(definition).openapi == body


def test_a_program_has_its_table() -> None:
    definition = ToolDefinition(
        "up", tool_type="executable", extra={"executable": {"command": "tr", "args": ["a", "A"]}}
    )

    assert tool_from_definition(definition).executable is not None


def test_what_is_wrong_names_the_tool() -> None:
    with pytest.raises(ToolError, match=r"tool count of the workflow: python\.source"):
        tool_from_definition(ToolDefinition("count", tool_type="python"))
