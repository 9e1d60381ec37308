"""The export for WebAssembly: what is in it, and that Pyodide from npm runs it without a network."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ratchet.flowkit.spec import (
    Repeat,
    StepType,
    ToolDefinition,
    WorkflowInput,
    WorkflowOutput,
    WorkflowSpec,
    WorkflowStep,
)
from ratchet.kernel import RunId
from ratchet.runtime import Runtime
from ratchet.sandbox import Bounds, Policy, run
from ratchet.workflows.exports import NotExportable, Target, export_workflow
from tests.workflows.exports.machine import Machine
from tests.workflows.exports.specs import article, one_step, python
from tests.workflows.running.settled import run as run_here

INPUTS = {"topic": "the tides", "title": "Sea"}


def growing() -> WorkflowSpec:
    """A step that is repeated, and one that fails at the end."""
    grow = python("def run(n, by):\n    print('growing', n)\n    return (n or 0) + by\n")
    return WorkflowSpec(
        "growing",
        portable=True,
        inputs=(WorkflowInput("by", "integer"),),
        outputs=(WorkflowOutput("size", source_reference="steps.grow.output"),),
        steps=(
            WorkflowStep(
                "grow",
                StepType.PYTHON_TOOL,
                tool_name="tool",
                input_mapping={"n": "last", "by": "inputs.by"},
                repeat=Repeat("last >= 5", 9),
            ),
        ),
        tool_definitions={"tool": grow},
    )


def test_it_has_what_npm_needs_and_runs_in_a_plain_python_too(runtime: Runtime, machine: Machine) -> None:
    asyncio.run(export_workflow(growing(), Target.WASM, machine.folder, runtime=runtime))

    assert "pyodide" in json.loads((machine.folder / "package.json").read_text())["dependencies"]
    assert "loadPyodide" in (machine.folder / "run_workflow.mjs").read_text()
    assert "node run_workflow.mjs --input by=…" in (machine.folder / "README.md").read_text()
    assert machine.run("--input", "by=2", "--json").told["outputs"] == {"size": 6}


def test_what_needs_processes_models_or_people_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    program = ToolDefinition(
        "tool",
        tool_type="executable",
        extra={"executable": {"command": "python3", "args": ["-c", "print(1)"]}},
    )
    person = one_step(None, step_type=StepType.APPROVAL, description="Well?")
    for spec, why in (
        (one_step(program), "is a program, and there are no processes in WebAssembly"),
        (person, "waits for a person, and there is none"),
        (article(), "asks a model; name a run whose answers are to be used"),
    ):
        with pytest.raises(NotExportable, match=why):
            asyncio.run(export_workflow(spec, Target.WASM, tmp_path / "export", runtime=runtime))


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pyodide, as npm installs it for an export."""
    from ratchet.workflows.exports.contents import package_json

    npm = shutil.which("npm")
    assert npm is not None, "npm is needed to run an export in WebAssembly"
    folder = tmp_path_factory.mktemp("packages")
    (folder / "package.json").write_text(package_json(growing()))
    line = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(line, cwd=folder, check=True, capture_output=True, timeout=600)
    return folder / "node_modules"


def in_wasm(machine: Machine, packages: Path, *arguments: str) -> Any:
    """What an export says of its run in Pyodide, where nothing can reach a network."""
    (machine.folder / "node_modules").symlink_to(packages)
    node = shutil.which("node")
    assert node is not None
    return asyncio.run(
        run(
            [node, str(machine.folder / "run_workflow.mjs"), *arguments, "--json"],
            cwd=machine.folder,
            bounds=Bounds(wall_seconds=600.0),
            policy=Policy(readable=(machine.folder, packages), environment={"PATH": os.defpath}),
        )
    )


@pytest.mark.soak
def test_pyodide_runs_it_without_a_network(runtime: Runtime, machine: Machine, packages: Path) -> None:
    asyncio.run(export_workflow(growing(), Target.WASM, machine.folder, runtime=runtime))

    done = in_wasm(machine, packages, "--input", "by=2")
    told = json.loads(done.stdout)
    assert (told["status"], told["outputs"]) == ("completed", {"size": 6})
    assert told["steps"]["grow"]["metrics"]["rounds"] == 3
    assert b"growing 4" in done.stderr

    (machine.folder / "node_modules").unlink()
    wrong = in_wasm(machine, packages, "--input", "by=two")
    assert (wrong.exit_code, wrong.stdout) == (2, b"")
    assert b"Input by must be an integer" in wrong.stderr


@pytest.mark.soak
def test_pyodide_answers_from_the_recorded_run(runtime: Runtime, machine: Machine, packages: Path) -> None:
    here = run_here(runtime, article(), INPUTS)
    run_id = RunId(here["run_id"])
    asyncio.run(export_workflow(article(), Target.WASM, machine.folder, runtime=runtime, run_id=run_id))

    given = ("--input", "topic=the tides", "--input", "title=Sea")
    told = json.loads(in_wasm(machine, packages, *given).stdout)
    assert (told["status"], told["outputs"], told["simulated"]) == ("completed", here["outputs"], True)
