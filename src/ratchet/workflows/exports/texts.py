"""The files of an export that are words: how to run it, what it needs, and the two small programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ratchet.flowkit.spec import WorkflowSpec
from ratchet.workflows.exports.runner.recording import Recording
from ratchet.workflows.exports.target import Target

RUN_PROGRAM = '''#!/usr/bin/env python3
"""Runs this workflow: python run_workflow.py --input NAME=VALUE … [--json]"""

import sys
from pathlib import Path

if sys.version_info < (3, 11):
    sys.exit("this workflow needs Python 3.11 or newer")

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from runner.command import main  # noqa: E402 - an isolated Python does not look beside the program

if __name__ == "__main__":
    sys.exit(main(FOLDER))
'''

TEST_PROGRAM = '''"""Checks this export: python test_workflow.py"""

import sys
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from runner import checking  # noqa: E402 - an isolated Python does not look beside the program


class WorkflowTest(checking.ExportTest):
    folder = FOLDER


if __name__ == "__main__":
    unittest.main()
'''

_VARIABLES = {
    "openai": ("`OPENAI_API_KEY`", "`OPENAI_BASE_URL`", "https://api.openai.com/v1"),
    "anthropic": ("`ANTHROPIC_API_KEY`", "`ANTHROPIC_BASE_URL`", "https://api.anthropic.com"),
    "ollama": ("no key", "`OLLAMA_BASE_URL`", "http://127.0.0.1:11434"),
}
_ABOUT_TARGET = {
    Target.CLOUD: "It asks hosted models.",
    Target.EDGE: "It asks models of an Ollama.",
    Target.EMBEDDED: "It asks no model and needs no network: what models said is recorded, and an input that was not "
    "recorded is an error.",
}


def requirements_text(packages: Sequence[str]) -> str:
    if not packages:
        return "# Nothing but Python 3.11 or newer is needed.\n"
    return "".join(f"{line}\n" for line in packages)


def readme(
    spec: WorkflowSpec,
    target: Target,
    models: Mapping[str, str],
    packages: Sequence[str],
    recording: Recording | None,
    notes: Sequence[str],
) -> str:
    parts = [
        f"# {spec.workflow_id} {spec.version}, for {target}",
        *([spec.description] if spec.description else []),
        f"A workflow that runs without Ratchet. {_ABOUT_TARGET[target]}",
        "## Run it",
        _commands(spec, packages),
        "With `--json` it prints one JSON document: `status`, `outputs`, `steps`. It exits with 0 when the workflow is "
        "completed, with 1 when it failed or waits for a person, with 2 when it was called wrongly and with 3 when a "
        "program is missing.",
        *(["## Inputs", _inputs(spec)] if spec.inputs else []),
        *(["## Models", _models(models)] if models else []),
        "## Test it",
        _test(recording),
        "## Not as in Ratchet",
        "\n".join(f"- {note}" for note in notes),
    ]
    return "\n\n".join(parts) + "\n"


def _commands(spec: WorkflowSpec, packages: Sequence[str]) -> str:
    inputs = "".join(f" --input {each.name}=…" for each in spec.inputs if each.required)
    install = ["    pip install -r requirements.txt"] if packages else []
    return "\n".join([*install, f"    python run_workflow.py{inputs}"])


def _inputs(spec: WorkflowSpec) -> str:
    rows = ["| name | type | default | |", "|---|---|---|---|"]
    for each in spec.inputs:
        default = "" if each.default is None else f"`{json.dumps(each.default, ensure_ascii=False)}`"
        told = default or ("required" if each.required else "")
        rows.append(f"| `{each.name}` | {each.type} | {told} | {_cell(each.description)} |")
    return "\n".join(rows)


def _models(models: Mapping[str, str]) -> str:
    rows = ["| in the workflow | asked here |", "|---|---|"]
    rows += [f"| {f'`{name}`' if name else 'the default'} | `{place}` |" for name, place in models.items()]
    told = []
    for provider in sorted({place.partition("/")[0] for place in models.values()}):
        key, base, own = _VARIABLES[provider]
        told.append(f"- {provider}: {key}; {base} in place of {own}")
    return "\n".join([*rows, "", "`export.json` holds this table. Variables of the environment:", "", *told])


def _test(recording: Recording | None) -> str:
    command = "    python test_workflow.py"
    if recording is None:
        return f"{command}\n\nNo run was exported with it, so it only checks that the export is whole."
    simulated = ", which was a simulation," if recording.simulated else ""
    return (
        f"{command}\n\nIt runs the workflow with the inputs of run {recording.run}{simulated} and what models answered "
        "then, and compares the outputs. `recorded.json` holds all of that: look at it before you give it away."
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
