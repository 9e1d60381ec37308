"""Exports run where there is no Ratchet, and give the answer that Ratchet gives."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from ratchet.flowkit.spec import StepType, WorkflowSpec, WorkflowStep
from ratchet.flowkit.writer import write_text
from ratchet.kernel import RunId
from ratchet.modelserver import ModelServer
from ratchet.runtime import Runtime
from ratchet.sandbox import Policy, run
from ratchet.workflows.exports import Target, export_workflow
from tests.workflows.exports.machine import Machine
from tests.workflows.exports.specs import article
from tests.workflows.running.settled import run as run_here

INPUTS = {"topic": "the tides", "title": "Sea"}
GIVEN = ("--input", "topic=the tides", "--input", "title=Sea", "--json")
PLACES = {
    "openai": {"llama3": "openai/large", "*": "openai/quick"},
    "anthropic": {"llama3": "anthropic/large", "*": "anthropic/quick"},
    "ollama": {"llama3": "ollama/llama3", "*": "ollama/quick"},
}


def answered_here(runtime: Runtime) -> dict[str, Any]:
    """The run of the workflow inside Ratchet."""
    done = run_here(runtime, article(), INPUTS)
    assert done["status"] == "completed", done["error"]
    return done


def export(runtime: Runtime, target: Target, machine: Machine, **more: Any) -> None:
    asyncio.run(export_workflow(article(), target, machine.folder, runtime=runtime, **more))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("target", "provider"),
    [(Target.CLOUD, "openai"), (Target.CLOUD, "anthropic"), (Target.EDGE, "ollama")],
)
def test_an_export_with_models_gives_the_same_answer(
    target: Target,
    provider: str,
    runtime: Runtime,
    machine: Machine,
    model_server: ModelServer,
    models: str,
) -> None:
    here = answered_here(runtime)
    export(runtime, target, machine, models=PLACES[provider])
    script = model_server.find(models)
    assert script is not None
    before = len(script.requests)

    there = machine.run(
        *GIVEN,
        OPENAI_BASE_URL=model_server.openai_url(models),
        OPENAI_API_KEY="openai-key",
        ANTHROPIC_BASE_URL=model_server.anthropic_url(models),
        ANTHROPIC_API_KEY="anthropic-key",
        OLLAMA_BASE_URL=model_server.anthropic_url(models),
    )

    assert (there.exit_code, there.stderr) == (0, "")
    told = there.told
    assert (told["status"], told["outputs"]) == ("completed", here["outputs"])
    assert told["steps"].keys() == here["steps"].keys()
    asked = script.requests[before:]
    assert {each.body["model"] for each in asked} == {
        place.partition("/")[2] for place in PLACES[provider].values()
    }
    keys = {each.headers.get("authorization", each.headers.get("x-api-key")) for each in asked}
    assert keys == {"openai": {"Bearer openai-key"}, "anthropic": {"anthropic-key"}}.get(provider, {None})


@pytest.mark.soak
def test_the_embedded_export_gives_the_same_answer_without_a_network(
    runtime: Runtime, machine: Machine
) -> None:
    here = answered_here(runtime)
    export(runtime, Target.EMBEDDED, machine, run_id=RunId(here["run_id"]))

    done = asyncio.run(
        run(
            [sys.executable, "-I", "-S", str(machine.folder / "run_workflow.py"), *GIVEN],
            cwd=machine.folder,
            policy=Policy(readable=(machine.folder,), environment={"PATH": os.defpath}),
        )
    )

    assert done.ok, done.stderr
    told = json.loads(done.stdout)
    assert (told["status"], told["outputs"], told["simulated"]) == ("completed", here["outputs"], True)


@pytest.mark.soak
def test_the_embedded_export_invents_no_answer(runtime: Runtime, machine: Machine) -> None:
    export(runtime, Target.EMBEDDED, machine, run_id=RunId(answered_here(runtime)["run_id"]))

    done = machine.run("--input", "topic=the moon", "--json")

    assert done.exit_code == 1
    assert done.told["steps"]["outline"]["status"] == "failed"
    assert "no answer is recorded" in done.told["steps"]["outline"]["error"]
    assert done.told["outputs"] == {}


@pytest.mark.soak
def test_the_test_of_an_export_passes_and_notices_another_answer(runtime: Runtime, machine: Machine) -> None:
    run_id = RunId(answered_here(runtime)["run_id"])
    for target, models in ((Target.CLOUD, PLACES["openai"]), (Target.EMBEDDED, None)):
        export(runtime, target, machine, run_id=run_id, models=models, force=True)
        assert machine.run(program="test_workflow.py").exit_code == 0

    recorded = machine.folder / "recorded.json"
    recorded.write_text(recorded.read_text().replace('"words": 4', '"words": 5'))
    done = machine.run(program="test_workflow.py")
    assert done.exit_code == 1
    assert "test_it_gives_the_recorded_answer" in done.stderr


def test_exporting_changes_neither_the_spec_nor_another_export(
    runtime: Runtime, machine: Machine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = article()
    before = write_text(spec)
    cloud, edge = (Machine(tmp_path_factory.mktemp(name) / "export") for name in ("cloud", "edge"))
    for where, target, models in (
        (cloud, Target.CLOUD, PLACES["openai"]),
        (edge, Target.EDGE, PLACES["ollama"]),
    ):
        asyncio.run(export_workflow(spec, target, where.folder, runtime=runtime, models=models))
        assert write_text(spec) == before
    assert (cloud.folder / "workflow.json").read_bytes() == (edge.folder / "workflow.json").read_bytes()
    assert "openai" not in (edge.folder / "export.json").read_text()
    assert "ollama" not in (cloud.folder / "export.json").read_text()


@pytest.mark.soak
def test_a_workflow_inside_another_is_recorded_with_it(runtime: Runtime, machine: Machine) -> None:
    outer = WorkflowSpec(
        "outer",
        steps=(
            WorkflowStep(
                "inside",
                StepType.SUB_WORKFLOW,
                workflow_spec=article(),
                input_mapping={"topic": "${item}"},
                for_each=["tides", "tides", "moons"],
            ),
            WorkflowStep("left", prompt_template="unwanted", when="1 > 2"),
        ),
    )
    here = run_here(runtime, outer)
    asyncio.run(
        export_workflow(outer, Target.EMBEDDED, machine.folder, runtime=runtime, run_id=RunId(here["run_id"]))
    )

    there = machine.run("--json")

    assert (there.exit_code, there.told["outputs"]) == (0, here["outputs"])
    assert there.told["steps"].keys() == here["steps"].keys()
    assert there.told["steps"]["left"]["reason"] == here["steps"]["left"]["reason"]
    assert there.told["steps"]["inside[1]/outline"]["metrics"]["recorded"] is True
