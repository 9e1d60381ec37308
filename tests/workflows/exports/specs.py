"""Workflows to be exported."""

from __future__ import annotations

from typing import Any

from ratchet.flowkit.spec import (
    StepType,
    ToolDefinition,
    WorkflowInput,
    WorkflowOutput,
    WorkflowSpec,
    WorkflowStep,
)

COUNT = """
def run(text, title):
    print("counting", title)
    return {"words": len(text.split()), "title": title}
"""
SPLIT = "import json, sys\ngiven = json.load(sys.stdin)\nprint(json.dumps(given['text'].split(' ')))\n"


def article() -> WorkflowSpec:
    """An outline by a model with a role, its words one by one by the default model, and a count in Python."""
    return WorkflowSpec(
        "article",
        description="An outline, word by word.",
        portable=True,
        inputs=(
            WorkflowInput("topic"),
            WorkflowInput("title", required=False, default="untitled", description="what it is | called"),
        ),
        outputs=(
            WorkflowOutput("outline", source_reference="steps.outline.text"),
            WorkflowOutput("shouted", "array", source_reference="steps.shout.output"),
            WorkflowOutput("words", "number", source_reference="steps.count.output.words"),
            WorkflowOutput("score", "number", source_reference="steps.grade.output.score"),
        ),
        steps=(
            WorkflowStep(
                "outline",
                tool_name="writer",
                prompt_template="outline of {topic}",
                input_mapping={"topic": "inputs.topic"},
                output_name="text",
            ),
            WorkflowStep(
                "words",
                StepType.PYTHON_TOOL,
                tool_name="split",
                input_mapping={"text": "steps.outline.text"},
            ),
            WorkflowStep(
                "shout",
                prompt_template="say ${item}",
                input_mapping={"word": "item"},
                for_each="steps.words.output",
            ),
            WorkflowStep(
                "count",
                StepType.PYTHON_TOOL,
                tool_name="count",
                input_mapping={"text": "steps.outline.text", "title": "inputs.title"},
            ),
            WorkflowStep("grade", tool_name="grader", input_mapping={"text": "steps.outline.text"}),
        ),
        tool_definitions={
            "writer": ToolDefinition(
                "writer", model="llama3", system_prompt="You write outlines.", temperature=0.2
            ),
            "grader": ToolDefinition(
                "grader",
                model="llama3",
                extra={
                    "llm": {"prompt_template": "grade {text}"},
                    "input_schema": {"type": "object", "required": ["text"]},
                    "output_schema": {
                        "type": "object",
                        "properties": {"score": {"type": "integer", "minimum": 0}},
                        "required": ["score"],
                    },
                },
            ),
            "split": ToolDefinition("split", tool_type="python", source_code=SPLIT),
            "count": ToolDefinition("count", tool_type="python", source_code=COUNT),
        },
    )


def one_step(tool: ToolDefinition | None = None, **more: Any) -> WorkflowSpec:
    """A workflow with one step, and what it gives as `output`."""
    settings = {"step_type": StepType.EXISTING_TOOL, "tool_name": tool and tool.tool_id, **more}
    return WorkflowSpec(
        "single",
        portable=tool is not None,
        inputs=(WorkflowInput("value", "number", required=False),),
        outputs=(WorkflowOutput("output", source_reference="steps.only.output"),),
        steps=(WorkflowStep("only", **settings),),
        tool_definitions={tool.tool_id: tool} if tool else {},
    )


def python(source: str, **more: Any) -> ToolDefinition:
    return ToolDefinition("tool", tool_type="python", source_code=source, **more)
