"""What the author of a variant is told. Real inputs that a variant is tried on are never part of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.ledger.tool_calls import CallRow, CallStats
from ratchet.tools.definition import Tool, ToolType
from ratchet.workflows.evolution.lineage import Earlier
from ratchet.workflows.evolution.parts import SOURCE

_SYSTEM = """\
You make one tool better: faster, smaller, cheaper, or right where it is wrong.

How your version is judged:
- It is run against the version in use, on the tool's examples, its tests, and real inputs that you do not see.
- Where the version in use gives the same answer every time, yours must give exactly that answer to every such input.
- It is taken only if it is better beyond noise in something, by at least a twentieth, and not clearly worse elsewhere.
- A change of names, comments or layout is worth nothing. Do not repeat what was tried before.

What stays as it is: the inputs, the outputs, the schemas, and what the tool does with odd inputs, errors included."""

_PYTHON = """\
The tool is Python. Keep the function that is called, or the script that reads one JSON document from stdin and prints
one. It runs in a fresh process each time, without network and without files, so nothing can be kept for the next call.
Use the standard library and what the tool requires already."""

_LLM = """\
The tool is a question to a model. You may rewrite its system prompt and its prompt template; names of inputs in braces
stand for their values and must stay. Fewer words that give the same answers are cheaper."""

TRIED = "Tried before, oldest first; do not repeat any of it"
_LONGEST_ERROR = 500
_MOST_FAILURES = 3


def system_prompt(tool: Tool) -> str:
    return f"{_SYSTEM}\n\n{_LLM if tool.type is ToolType.LLM else _PYTHON}"


def make_prompt(
    tool: Tool,
    files: Mapping[str, str],
    stats: CallStats,
    failures: Sequence[CallRow],
    earlier: Sequence[Earlier],
    *,
    why: str,
    edits_files: bool,
) -> str:
    """What is asked for, with everything that is known about the tool."""
    how = "Edit the files in this directory:" if edits_files else "Answer with the whole new text of:"
    sections = [
        f"The tool {tool.id}: {tool.description.strip()}",
        f"Why it should be better: {why}",
        _listed("What its calls took", _measured(stats)),
        _listed("Calls that failed lately", [_failure(call) for call in failures[:_MOST_FAILURES]]),
        _schemas(tool),
        _listed("Examples", [_example(example.input, example.output) for example in tool.examples]),
        _listed(TRIED, [each.told() for each in earlier]),
        f"{how} {', '.join(files)}. Say in a sentence what you changed and why it should be better.",
        *(_file(name, text) for name, text in files.items()),
    ]
    return "\n\n".join(section for section in sections if section)


def _measured(stats: CallStats) -> list[str]:
    found = {
        "calls": f"{stats.runs}",
        "success rate": _number(stats.success_rate, "{:.0%}"),
        "mean time": _number(stats.recent_wall_ms, "{:.1f} ms"),
        "slowest twentieth": _number(stats.recent_p95_ms, "{:.1f} ms or more"),
        "most memory": _number(stats.recent_peak_bytes, "{:.0f} bytes"),
        "mean cost": _number(stats.recent_cost_microusd or None, "{:.0f} millionths of a dollar"),
        "score": _number(stats.recent_score, "{:.2f} of 1"),
    }
    return [f"{name}: {value}" for name, value in found.items() if value]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _failure(call: CallRow) -> str:
    shown = "an input that was not kept" if call.input is None else json.dumps(call.input)[:_LONGEST_ERROR]
    return f"{shown}: {(call.error or 'no error is on record')[:_LONGEST_ERROR]}"


def _schemas(tool: Tool) -> str:
    found = {"Input schema": tool.input_schema, "Output schema": tool.output_schema}
    return "\n".join(f"{name}: {json.dumps(schema)}" for name, schema in found.items() if schema)


def _example(values: Mapping[str, Any], output: Any) -> str:
    return f"{json.dumps(values)} → {json.dumps(output)}"


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"- {line}" for line in lines)]) if lines else ""


def _file(name: str, text: str) -> str:
    language = "python" if name == SOURCE else ""
    return f"{name} now:\n```{language}\n{text.rstrip()}\n```"
