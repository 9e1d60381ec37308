"""What cannot be exported is refused before anything is written, with the reason for each step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.config import load_settings
from ratchet.flowkit.spec import StepType, ToolDefinition, WorkflowSpec, WorkflowStep
from ratchet.flowkit.writer import write_spec
from ratchet.kernel import Conflict, Misuse, NotFound, RunId
from ratchet.runtime import Runtime, Worker
from ratchet.tools.definition import LlmBody
from ratchet.workflows.exports import NotExportable, Target, export_workflow, read_target
from ratchet.workflows.exports.contents import NoModel, place_of
from ratchet.workflows.files import BadWorkflow
from tests.workflows.exports.specs import article, one_step, python
from tests.workflows.running.settled import run as run_here


def refused(runtime: Runtime, spec: WorkflowSpec, target: Target, folder: Path, **more: Any) -> str:
    """Why it is refused."""
    with pytest.raises(NotExportable) as raised:
        asyncio.run(export_workflow(spec, target, folder, runtime=runtime, **more))
    assert not folder.exists()
    return "\n".join(raised.value.reasons)


def test_an_unknown_target_names_those_that_there_are() -> None:
    assert read_target("wasm") is Target.WASM
    with pytest.raises(Misuse, match="there is no export for 'moon'") as raised:
        read_target("moon")
    assert raised.value.hint == "choose cloud, edge, embedded or wasm"


def test_a_model_without_a_place_is_named_for_each_step(runtime: Runtime, tmp_path: Path) -> None:
    why = refused(runtime, article(), Target.CLOUD, tmp_path / "export", models={"llama3": "openai/large"})
    assert why == ("step shout: the default model has no place there; name one with --model *=openai/MODEL")


def test_a_model_of_the_target_at_its_makers_own_address_needs_no_table(tmp_path: Path) -> None:
    def place(model: str, target: Target, **flags: object) -> str:
        settings = load_settings({"home": str(tmp_path), **flags}, env={}).settings
        return place_of(model, LlmBody(model=model), target, {}, settings)

    assert place("llama3", Target.EDGE) == "ollama/llama3"
    assert place("claude-some", Target.CLOUD) == "anthropic/claude-some"
    with pytest.raises(NoModel):
        place("llama3", Target.CLOUD)
    with pytest.raises(NoModel):
        place("openai/some", Target.CLOUD, **{"llm.endpoints.openai.base_url": "http://127.0.0.1:1/v1"})


def test_a_tier_is_not_taken_for_the_name_of_a_model(runtime: Runtime, tmp_path: Path) -> None:
    tool = ToolDefinition("tool", extra={"llm": {"tier": "general", "prompt_template": "hello"}})
    why = refused(runtime, one_step(tool), Target.EDGE, tmp_path / "export")
    assert "the model 'general' has no place there; name one with --model general=ollama/MODEL" in why


@pytest.mark.parametrize("wanted", ["gpt-5", "ollama/llama3", "openai/"])
def test_a_table_of_models_must_fit_the_target(wanted: str, runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="is no model of cloud"):
        asyncio.run(
            export_workflow(
                article(), Target.CLOUD, tmp_path / "export", runtime=runtime, models={"llama3": wanted}
            )
        )


def test_a_model_that_the_workflow_does_not_ask_is_a_mistake(runtime: Runtime, tmp_path: Path) -> None:
    models = {"*": "ollama/quick", "lama3": "ollama/llama3"}
    with pytest.raises(Misuse, match="asks no model called lama3"):
        asyncio.run(
            export_workflow(article(), Target.EDGE, tmp_path / "export", runtime=runtime, models=models)
        )


def test_without_a_run_nothing_can_answer_in_place_of_a_model(runtime: Runtime, tmp_path: Path) -> None:
    why = refused(runtime, article(), Target.EMBEDDED, tmp_path / "export")
    assert [line.split(" ")[1] for line in why.splitlines()] == ["outline", "shout", "grade"]


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        (python("def run(): ...", requirements=("rich==14.0.0",)), "only the standard library"),
        (python("def run(): ...", extra={"network": True}), "needs the network"),
        (
            ToolDefinition("tool", tool_type="executable", extra={"executable": {"command": "ls"}}),
            "is a program of this machine",
        ),
        (
            ToolDefinition("tool", tool_type="api", extra={"openapi": {"base_url": "http://127.0.0.1:1"}}),
            "needs the network",
        ),
    ],
)
def test_the_embedded_export_has_python_and_nothing_else(
    tool: ToolDefinition, why: str, runtime: Runtime, tmp_path: Path
) -> None:
    told = refused(runtime, one_step(tool), Target.EMBEDDED, tmp_path / "export")
    assert told.startswith("step only: tool tool ")
    assert why in told


def test_nobody_approves_where_nobody_is(runtime: Runtime, tmp_path: Path) -> None:
    spec = one_step(step_type=StepType.APPROVAL, prompt_template="Continue?", tool_name=None)
    assert "step only waits for a person" in refused(runtime, spec, Target.EMBEDDED, tmp_path / "export")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("tool", "why"),
    [
        (
            ToolDefinition("tool", tool_type="mcp", extra={"mcp": {"server": "s", "tool": "t"}}),
            "an MCP server",
        ),
        (
            ToolDefinition(
                "tool", tool_type="executable", extra={"executable": {"command": "/opt/own/program"}}
            ),
            "lies on this machine only",
        ),
        (
            python("def run(): ...", extra={"output_schema": {"type": "object", "minContains": 1}}),
            "has a schema with minContains",
        ),
        (
            ToolDefinition(
                "tool", tool_type="api", extra={"openapi": {"spec_url": "http://127.0.0.1:1/spec.json"}}
            ),
            "save it and name the file in spec_path",
        ),
        (
            ToolDefinition(
                "tool",
                tool_type="api",
                extra={"openapi": {"base_url": "http://127.0.0.1:1", "auth": {"token": "$TOKEN"}}},
            ),
            "has an openapi.auth that an export does not know",
        ),
    ],
)
def test_what_would_not_work_elsewhere_is_refused(
    tool: ToolDefinition, why: str, runtime: Runtime, tmp_path: Path
) -> None:
    told = refused(runtime, one_step(tool), Target.CLOUD, tmp_path / "export")
    assert told.startswith("step only: tool tool ")
    assert why in told


def test_steps_inside_a_sub_workflow_are_named_by_their_place(runtime: Runtime, tmp_path: Path) -> None:
    inner = one_step(step_type=StepType.APPROVAL, prompt_template="Continue?", tool_name=None)
    outer = WorkflowSpec(
        "outer",
        steps=(
            WorkflowStep("report", StepType.SUB_WORKFLOW, workflow_spec=replace(inner, workflow_id="inner")),
        ),
    )
    assert "step report/only waits" in refused(runtime, outer, Target.EMBEDDED, tmp_path / "export")


def test_a_workflow_that_could_not_run_here_is_not_exported(runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(BadWorkflow, match="step only"):
        asyncio.run(
            export_workflow(
                one_step(tool_name="no_such_tool"), Target.CLOUD, tmp_path / "export", runtime=runtime
            )
        )
    assert not (tmp_path / "export").exists()


@pytest.mark.soak
def test_only_a_completed_run_of_this_workflow_is_recorded(
    runtime: Runtime, tmp_path: Path, worker: Worker
) -> None:
    def export(spec: WorkflowSpec, run_id: int) -> None:
        asyncio.run(
            export_workflow(spec, Target.EMBEDDED, tmp_path / "export", runtime=runtime, run_id=RunId(run_id))
        )

    with pytest.raises(NotFound):
        export(one_step(python("def run(): return 1\n")), 99)
    failed = run_here(runtime, one_step(python("def run(): return 1 / 0\n")))
    with pytest.raises(Conflict, match="that is failed; only a completed run"):
        export(one_step(python("def run(): return 1 / 0\n")), failed["run_id"])
    other = run_here(runtime, one_step(python("def run(): return 1\n")))
    with pytest.raises(Conflict, match="is of another workflow"):
        export(one_step(python("def run(): return 2\n")), other["run_id"])


def test_a_workflow_goes_along_as_a_step_but_not_in_the_place_of_another_tool(
    runtime: Runtime, tmp_path: Path
) -> None:
    body = {"workflow": {"spec": write_spec(replace(one_step(tool_name="identity"), workflow_id="inside"))}}
    tool = python("def run():\n    return 1\n")
    spec = one_step(tool, fallback_tool="other")
    other = ToolDefinition("other", tool_type="workflow", extra=body)
    spec = replace(spec, tool_definitions={**spec.tool_definitions, "other": other})
    why = refused(runtime, spec, Target.CLOUD, tmp_path / "export")
    assert why == (
        "step only: tool other is a workflow, which can go along as a step and not in the place of another tool"
    )
