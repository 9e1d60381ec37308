"""The files of an export: its code, its models, how to run it, and the two small programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from ratchet.config import Settings
from ratchet.engines.llm.choice import ModelCandidate, candidates
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.kernel import Missing, Misuse
from ratchet.tools.definition import LlmBody
from ratchet.tools.models import choose_model
from ratchet.workflows.export_runner.caller import ExportRecording
from ratchet.workflows.exports.tools import Target

ALL = "*"
"""In a table of models: whatever is not named."""
# Where the runner finds in an export what lies elsewhere in Ratchet.
_ELSEWHERE = {
    "from ratchet.flowkit.": "from flowkit.",
    "from ratchet.tools.inside import python_tool": "from . import python_tool",
    "from ratchet.tools.openapi import": "from .openapi import",
    "from ratchet.tools.call import ToolCallFailed": "from .models import ExportToolFailed as ToolCallFailed",
}
_SHARED = {
    "python_tool.py": ("ratchet.tools.inside", "python_tool.py"),
    "openapi.py": ("ratchet.tools", "openapi.py"),
}
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

from runner import command  # noqa: E402 - an isolated Python does not look beside the program


class WorkflowTest(command.ExportTest):
    folder = FOLDER


if __name__ == "__main__":
    unittest.main()
'''
WASM_PROGRAM = """// Runs this workflow in WebAssembly: node run_workflow.mjs --input NAME=VALUE … [--json]

import path from "node:path";
import { fileURLToPath } from "node:url";
import { loadPyodide } from "pyodide";

const folder = path.dirname(fileURLToPath(import.meta.url));
const python = await loadPyodide({
  stdout: (line) => process.stdout.write(line + "\\n"),
  stderr: (line) => process.stderr.write(line + "\\n"),
});
// The export, and the place from which it is called, for files that are named there.
python.mountNodeFS("/workflow", folder);
python.mountNodeFS("/here", process.cwd());
python.globals.set("given", python.toPy(process.argv.slice(2)));
process.exitCode = await python.runPythonAsync(`
import os, sys
from pathlib import Path
sys.path.insert(0, "/workflow")
os.chdir("/here")
from runner.command import run_command
try:
    code = await run_command(Path("/workflow"), given)
except SystemExit as left:
    code = left.code if isinstance(left.code, int) else 2 if left.code else 0
code
`);
"""
PYODIDE = "^314.0.7"
"""The releases of Pyodide, a Python in WebAssembly, with which an export runs."""
WASM_NOTES = (
    "Tools run one after the other in the same Python as the workflow: the time of a step is not kept to, and one that "
    "never ends is ended with the process. WebAssembly is what keeps them from everything but this folder and the "
    "directory in which it is called.",
    "Nothing is written down: a run that is interrupted starts over, and no result is kept for the next one.",
    "How often a tool may be called in an hour is not counted.",
)
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
    Target.WASM: "It runs in WebAssembly, asks no model and needs no network: what models said is recorded, and an "
    "input that was not recorded is an error.",
}


class NoModel(Exception):
    """A name for which no model is chosen."""


def check_table(target: Target, models: Mapping[str, str]) -> None:
    """Raises `Misuse` for a model that the target cannot have."""
    for name, wanted in models.items():
        provider, _, model = wanted.partition("/")
        if provider not in target.providers or not model:
            known = " or ".join(f"{each}/MODEL" for each in target.providers)
            raise Misuse(
                f"{wanted!r} for {name!r} is no model of {target}",
                hint=f"name it as {known}" if known else "an export without models needs no --model",
            )


def place_of(name: str, body: LlmBody, target: Target, models: Mapping[str, str], settings: Settings) -> str:
    """`provider/model` for a name as the workflow has it; the empty name is the default. Raises `NoModel`.

    First what the table says. Else what the settings say, where that is a model of this target at its maker's own
    address: it is the same model then. A private address would not exist elsewhere.
    """
    for known in (name, ALL):
        if known in models:
            return models[known]
    meant = _meant(body, settings)
    if meant and meant.endpoint.kind in target.providers and meant.is_at_home:
        return f"{meant.endpoint.kind}/{meant.model}"
    shown = f"the model {name!r}" if name else "the default model"
    raise NoModel(
        f"{shown} has no place there; name one with --model {name or ALL}={target.providers[0]}/MODEL"
    )


def _meant(body: LlmBody, settings: Settings) -> ModelCandidate | None:
    """The model that a run here would ask first."""
    engine, _, own = settings.workflows.llm.partition(":")
    try:
        choice = choose_model(
            settings.llm, model=body.model, role=body.role, tier=body.tier, environment=os.environ
        )
        return candidates(choice or own or None, settings.llm, os.environ)[0] if engine == "llm" else None
    except (Misuse, Missing):
        return None


@cache
def kit_files() -> dict[str, bytes]:
    """Every file of the kit by its path in an export."""
    runner = _sources("ratchet.workflows.export_runner")
    for name, (package, file) in _SHARED.items():
        runner[name] = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    files = {f"flowkit/{name}": text for name, text in _sources("ratchet.flowkit").items()}
    files |= {f"runner/{name}": _moved(text) for name, text in runner.items()}
    return {name: text.encode() for name, text in files.items()}


def _moved(text: str) -> str:
    for here, there in _ELSEWHERE.items():
        text = text.replace(here, there)
    return text


def _sources(package: str) -> dict[str, str]:
    return dict(sorted(_below(resources.files(package), "")))


def _below(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    found = []
    for each in folder.iterdir():
        if each.is_dir() and each.name != "__pycache__":
            found += _below(each, f"{prefix}{each.name}/")
        elif each.name.endswith((".py", ".json")):
            found.append((f"{prefix}{each.name}", each.read_text(encoding="utf-8")))
    return found


def requirements_text(packages: Sequence[str]) -> str:
    if not packages:
        return "# Nothing but Python 3.11 or newer is needed.\n"
    return "".join(f"{line}\n" for line in packages)


def readme(
    spec: WorkflowSpec,
    target: Target,
    models: Mapping[str, str],
    packages: Sequence[str],
    recording: ExportRecording | None,
    notes: Sequence[str],
) -> str:
    parts = [
        f"# {spec.workflow_id} {spec.version}, for {target}",
        *([spec.description] if spec.description else []),
        f"A workflow that runs without Ratchet. {_ABOUT_TARGET[target]}",
        "## Run it",
        _commands(spec, packages, target),
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


def package_json(spec: WorkflowSpec) -> str:
    """What npm installs for an export in WebAssembly: Pyodide with its own Python, and nothing else."""
    about = {
        "name": re.sub(r"[^a-z0-9-]+", "-", spec.workflow_id.lower()).strip("-") or "workflow",
        "private": True,
        "type": "module",
        "dependencies": {"pyodide": PYODIDE},
    }
    return json.dumps(about, indent=2) + "\n"


def _commands(spec: WorkflowSpec, packages: Sequence[str], target: Target) -> str:
    inputs = "".join(f" --input {each.name}=…" for each in spec.inputs if each.required)
    if target is Target.WASM:
        return (
            f"    npm install\n    node run_workflow.mjs{inputs}\n\nOnly `npm install` needs a network. Node 20 or "
            "newer; `python run_workflow.py` does the same without WebAssembly."
        )
    install = ["    pip install -r requirements.txt"] if packages else []
    return "\n".join([*install, f"    python run_workflow.py{inputs}"])


def _inputs(spec: WorkflowSpec) -> str:
    rows = ["| name | type | default | |", "|---|---|---|---|"]
    for each in spec.inputs:
        default = "" if each.default is None else f"`{json.dumps(each.default, ensure_ascii=False)}`"
        needed = default or ("required" if each.required else "")
        rows.append(f"| `{each.name}` | {each.type} | {needed} | {_cell(each.description)} |")
    return "\n".join(rows)


def _models(models: Mapping[str, str]) -> str:
    rows = ["| in the workflow | asked here |", "|---|---|"]
    rows += [f"| {f'`{name}`' if name else 'the default'} | `{place}` |" for name, place in models.items()]
    variables = []
    for provider in sorted({place.partition("/")[0] for place in models.values()}):
        key, base, own = _VARIABLES[provider]
        variables.append(f"- {provider}: {key}; {base} in place of {own}")
    return "\n".join(
        [*rows, "", "`export.json` holds this table. Variables of the environment:", "", *variables]
    )


def _test(recording: ExportRecording | None) -> str:
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
