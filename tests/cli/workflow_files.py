"""Small workflows that compute something, written to files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SPLIT = "def run(text):\n    return text.split()\n"
COUNT = "def run(words):\n    return len(words)\n"
LONGEST = "def run(words):\n    return max(words, key=len)\n"
TELL = "def run(count, longest):\n    return f'{count} words, the longest is {longest}'\n"


def step(name: str, tool: str | None = None, /, **more: Any) -> dict[str, Any]:
    """A step that calls the tool of its own name, unless another one is given."""
    return {"step_id": name, "type": "python_tool", "tool": tool or name, **more}


def workflow(
    steps: list[dict[str, Any]],
    tools: Mapping[str, str | dict[str, Any]] | None = None,
    *,
    name: str = "counting",
    **more: Any,
) -> dict[str, Any]:
    """A workflow that carries its tools with it, given as Python source or as whole definitions."""
    carried = {
        key: {"type": "python", "source_code": tool} if isinstance(tool, str) else tool
        for key, tool in (tools or {}).items()
    }
    return {"workflow_id": name, "portable": True, "steps": steps, "tools": carried, **more}


def counting() -> dict[str, Any]:
    """A diamond: a text is split, two steps look at its words, and one tells what they found."""
    return workflow(
        [
            step("split", input_mapping={"text": "inputs.text"}, output_name="words"),
            step("count", input_mapping={"words": "steps.split.words"}),
            step("longest", input_mapping={"words": "steps.split.words"}),
            step("tell", input_mapping={"count": "steps.count.output", "longest": "steps.longest.output"}),
        ],
        {"split": SPLIT, "count": COUNT, "longest": LONGEST, "tell": TELL},
        description="Count the words of a text.",
        inputs={"text": {"type": "string"}},
        outputs={"told": {"type": "string", "source_reference": "steps.tell.output"}},
    )


def write(folder: Path, spec: Mapping[str, Any], name: str = "flow.json") -> str:
    path = folder / name
    path.write_text(json.dumps(spec))
    return str(path)
