"""Plans as a model would answer them."""

from __future__ import annotations

from typing import Any

SENTENCE = "Count the words of a text and say the number in a sentence"
COUNTER = """
id: tally_words
name: tally_words
type: python
description: Counts the words of a text.
input_schema:
  type: object
  properties: {text: {type: string}}
  required: [text]
output_schema: {type: integer}
examples:
  - {input: {text: "one two"}, output: 2}
python:
  source: |
    def run(text):
        return len(text.split())
"""


def step(name: str, **more: Any) -> dict[str, Any]:
    """A step with every key that a plan must have; `inputs` is its input_mapping."""
    inputs = more.pop("inputs", {"text": "inputs.text"})
    return {
        "step_id": name,
        "type": "llm_call",
        "description": f"does {name}",
        "tool": None,
        "prompt_template": None if "type" in more else "Say it: {text}",
        "generate_tool": False,
        "operation_type": None,
        "input_mapping": [{"name": key, "value": value} for key, value in inputs.items()],
        "output_name": "output",
        "depends_on": [],
        "when": None,
        "for_each": None,
        **more,
    }


def plan(*steps: dict[str, Any], name: str = "word_report", output: str | None = None) -> dict[str, Any]:
    """A plan with one input `text`, and the result of the last step as its output."""
    last = output or f"steps.{steps[-1]['step_id']}.{steps[-1]['output_name']}"
    return {
        "workflow_id": name,
        "description": "reports on words",
        "inputs": [
            {"name": "text", "type": "string", "required": True, "default": None, "description": "a text"}
        ],
        "outputs": [
            {"name": "report", "type": "string", "source_reference": last, "description": "the report"}
        ],
        "steps": list(steps),
    }


def count_with(tool: str) -> dict[str, Any]:
    """Count with a tool, then say it."""
    return plan(
        step("count", type="existing_tool", tool=tool),
        step("say", inputs={"text": "steps.count.output"}),
    )


def circle() -> dict[str, Any]:
    return plan(
        step("first", inputs={"text": "steps.second.output"}),
        step("second", inputs={"text": "steps.first.output"}),
    )


def wants_a_tool(**more: Any) -> dict[str, Any]:
    """A plan whose first step has a tool written for it."""
    return plan(
        step(
            "shout", type="python_tool", generate_tool=True, description="Turns a text into capitals.", **more
        )
    )


def source(code: str, *, output: Any = "AB", **more: Any) -> dict[str, Any]:
    """A tool as a model writes it."""
    return {
        "source": code,
        "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "output_schema": {"type": "string"},
        "examples": [{"input": {"text": "ab"}, "output": output}],
        **more,
    }


GOOD_SOURCE = "def run(text):\n    return text.upper()\n"
