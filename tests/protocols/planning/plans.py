"""Plans as an engine would answer them."""

from __future__ import annotations

from typing import Any

DESCRIPTION = "Greet whoever starts the program, in German as well."


def step(filename: str, content: str = "# A step\n\nDo it.\n", **more: Any) -> dict[str, Any]:
    """A step file with every key that structured output wants."""
    return {
        "filename": filename,
        "content": content,
        "title": None,
        "depends_on": None,
        "parallel_group": None,
        "step_type": None,
        "qa": None,
        "engine": None,
        "needs_decomposition": None,
        **more,
    }


def question(key: str, **more: Any) -> dict[str, Any]:
    return {
        "key": key,
        "question": f"Which {key}?",
        "options": None,
        "recommended": None,
        "blocking": None,
        **more,
    }


def plan(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    files = steps or (step("00-setup.md"), step("01-greet.md"), step("02-german.md"))
    return {
        "plan_md": "# Plan\n\nGreet.\n",
        "context_md": "# Context\n",
        "log_md": "# Log\n",
        "step_files": list(files),
        "clarifications": None,
        **more,
    }
