"""Workflows in the forms that are around, as JSON objects."""

from typing import Any


def portable() -> dict[str, Any]:
    """One that carries its tools with it."""
    return {
        "workflow_id": "recipe_card_portable",
        "version": "1.0.0",
        "description": "Plan a dish and put the card into another language",
        "portable": True,
        "created_by": "code_evolver",
        "created_at": "2025-11-15T13:00:00Z",
        "tags": ["cooking", "translation"],
        "inputs": {
            "topic": {"type": "string", "required": True, "description": "The dish"},
            "language": {
                "type": "string",
                "required": False,
                "default": "Welsh",
                "description": "The language",
            },
        },
        "outputs": {
            "card": {
                "type": "string",
                "description": "The card",
                "source_reference": "steps.translate.output",
            }
        },
        "steps": [
            {
                "step_id": "list_parts",
                "type": "llm_call",
                "description": "List what is needed",
                "tool": "cook",
                "prompt_template": "What does {topic} need?",
                "input_mapping": {"topic": "inputs.topic"},
                "output_name": "parts",
            },
            {
                "step_id": "translate",
                "type": "llm_call",
                "description": "Translate the list",
                "tool": "translator",
                "prompt_template": "Say in {language}:\n\n{text}",
                "input_mapping": {"text": "steps.list_parts.parts", "language": "inputs.language"},
                "output_name": "output",
            },
        ],
        "tools": {
            "cook": {
                "tool_id": "cook",
                "name": "Cook",
                "description": "Knows dishes",
                "type": "llm",
                "model": "llama3",
                "system_prompt": "You cook.",
                "endpoint": "http://localhost:11434",
                "timeout": 120,
            },
            "translator": {
                "tool_id": "translator",
                "name": "Translator",
                "description": "Knows languages",
                "type": "llm",
                "model": "llama3",
                "temperature": 0.3,
                "timeout": 120,
                "fallback_tool": "cook",
            },
        },
    }


def braced() -> dict[str, Any]:
    """One that writes references as `${…}` and says `output` for every step's value."""
    return {
        "workflow_id": "survey",
        "version": "1.0.0",
        "description": "Look at a table of answers",
        "created_by": "code_evolver",
        "created_at": "2025-01-17",
        "tags": ["tables"],
        "portable": False,
        "inputs": {
            "table": {"type": "string", "required": True, "description": "Path of the table"},
            "depth": {"type": "string", "required": False, "default": "short", "description": "How much"},
        },
        "outputs": {
            "numbers": {"type": "object", "source_reference": "steps.count.output"},
            "text": {"type": "string", "source_reference": "steps.explain.output"},
        },
        "dependencies": {
            "llm_tools": ["explainer"],
            "python_tools": [],
            "pip_packages": [{"name": "pandas", "version": ">=2.0.0"}],
        },
        "steps": [
            {
                "step_id": "load",
                "type": "python_tool",
                "description": "Load the table",
                "generate_tool": True,
                "operation_type": "transformer",
                "input_mapping": {"file_path": "${inputs.table}"},
                "output_name": "rows",
                "timeout": 60,
            },
            {
                "step_id": "count",
                "type": "python_tool",
                "description": "Count the answers",
                "generate_tool": True,
                "input_mapping": {"data": "${steps.load.output}", "depth": "${inputs.depth}"},
                "output_name": "counts",
                "parallel_group": 1,
                "depends_on": ["load"],
            },
            {
                "step_id": "draw",
                "type": "python_tool",
                "description": "Draw the answers",
                "generate_tool": True,
                "input_mapping": {"data": "${steps.load.output}"},
                "output_name": "picture",
                "parallel_group": 1,
                "depends_on": ["load"],
            },
            {
                "step_id": "explain",
                "type": "llm_call",
                "description": "Explain the numbers",
                "tool": "explainer",
                "prompt_template": "These are the numbers:\n\n${steps.count.output}\n\nExplain them.",
                "input_mapping": {"counts": "${steps.count.output}"},
                "output_name": "text",
                "depends_on": ["count", "draw"],
            },
        ],
    }


def old() -> dict[str, Any]:
    """One with `input_parameters`, `input` and `output_key`, and `{name}` in its inputs."""
    return {
        "workflow_id": "pack",
        "name": "Pack a tool",
        "description": "Put a tool into a box",
        "version": "2.0",
        "priority": "medium",
        "tags": ["boxes"],
        "input_parameters": {
            "tool_id": {"type": "string", "required": True, "description": "What to pack"},
            "port": {"type": "integer", "required": False, "default": 8080},
            "label": {"type": "string", "required": False, "default": None},
        },
        "steps": [
            {
                "step_id": "look",
                "tool": "analyzer",
                "description": "Look at what it needs",
                "input": {"config": '{"tool": "{tool_id}", "deep": false}', "port": "{port}"},
                "output_key": "needs",
                "parallel_group": "first",
            },
            {
                "step_id": "copy",
                "tool": "copier",
                "description": "Copy its files",
                "input": {
                    "files": "{needs.file_list}",
                    "other": "{unknown}",
                    "nested": [{"at": "{tool_id}"}],
                },
                "output_key": "copied",
            },
        ],
        "output_schema": {"success": "bool"},
        "metadata": {"cost_tier": "low", "note": None},
    }


def overseer() -> dict[str, Any]:
    """One as the overseer of the original writes it."""
    return {
        "workflow_id": "joke",
        "description": "A joke in French",
        "steps": [
            {
                "step_id": "step1",
                "type": "llm_call",
                "task_for_node": "Write a joke",
                "tool": "writer",
                "output_name": "joke",
                "parallel_group": None,
                "depends_on": [],
            },
            {
                "step_id": "step2",
                "type": "llm_call",
                "task_for_node": "Translate the joke to French",
                "tool": "translator",
                "input_from_step": "step1",
                "output_name": "french",
            },
        ],
    }


def small(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One with these steps, each of which calls the tool `echo` unless it says otherwise."""
    return {
        "workflow_id": "small",
        "steps": [{"type": "existing_tool", "tool": "echo", **step} for step in steps],
        **more,
    }
