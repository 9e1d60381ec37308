"""One step: whose engine, which model and which prompt carry it out, what it leaves, and who reviews it."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ratchet.config import BudgetLimits, load_settings
from ratchet.config.engine_settings import CommandSettings
from ratchet.kernel import BudgetPolicy, RunStatus, StepStatus
from ratchet.ledger.artifacts import of_run
from ratchet.ledger.projects import Project, get_project
from ratchet.ledger.protocols import Protocol, ProtocolStep
from ratchet.ledger.runs import list_attempts
from ratchet.projects.clone import open_clone
from ratchet.protocols.actions import run_qa, start_protocol
from ratchet.protocols.codemachine import import_workspace
from ratchet.protocols.engine_choice import EngineChoice, choose
from ratchet.runtime import Runtime, Worker, list_jobs, resume_run
from tests.protocols.codemachine.workspaces import write
from tests.protocols.planned import NAME, add_agent, change_settings, finished, lay_out, step, told
from tests.protocols.world import World, git
from tests.waiting import eventually

Row = TypeVar("Row", Project, Protocol, ProtocolStep)
DONE, FAILED = StepStatus.COMPLETED, StepStatus.FAILED
# Says which model it was given and what it was told, and changes a file.
ECHO = """\
import pathlib, sys
pathlib.Path("echo.txt").write_text("done")
print("model", sys.argv[1], "was told:", sys.stdin.read())
"""
# Passes only what it was asked to review by its own prompt, with its own model.
INSPECTOR = """\
import sys
right = "Be the inspector." in sys.stdin.read() and sys.argv[1] == "m-qa"
print("VERDICT: PASS" if right else "VERDICT: FAIL")
"""
# Tells what it used.
COUNTING = "import pathlib; pathlib.Path('counted.txt').write_text('1'); print('used 900 tokens')"


def version(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def add_with_model(runtime: Runtime, name: str, source: str, **more: Any) -> None:
    argv = [sys.executable, "-c", source, "{model}"]
    agents = {**runtime.settings.engines.command, name: CommandSettings(argv=argv, **more)}
    change_settings(runtime, "engines", command=agents)


def limit(runtime: Runtime, policy: BudgetPolicy = BudgetPolicy.STRICT, **tokens: int) -> None:
    limits = {scope: BudgetLimits(tokens=number) for scope, number in tokens.items()}
    change_settings(runtime, "budgets", policy=policy, **limits)


def blank(kind: type[Row], **values: Any) -> Row:
    """A row of the ledger in which nothing else is said."""
    return kind(**{each.name: None for each in fields(kind)} | values)


@pytest.mark.parametrize("nearest", range(7))
@pytest.mark.parametrize("empty", [None, "", 7])
def test_the_nearest_word_about_engine_and_model_counts(nearest: int, empty: object) -> None:
    order = ["spec", "step", "agent", "template", "project", "settings"]
    named = order[nearest:]
    said = {name: name if name in named else empty for name in order}
    agent = {"engine_id": said["agent"], "model": said["agent"]}
    spec = {"engine_id": said["spec"], "model": said["spec"], "metadata": {"agent": agent}}
    template = {"engineDefaults": {"execute": said["template"], "executeModel": said["template"]}}
    far = "settings" if "settings" in named else None
    chosen = choose(
        load_settings({"protocols.engine": far, "protocols.models.exec": far}, env={}).settings,
        blank(Project, default_models={"exec": said["project"]}),
        blank(Protocol, template_config={"template": template}),
        blank(ProtocolStep, spec=spec, engine_id=said["step"], model=said["step"]),
    )
    # A project names models and no engines.
    engines = [name for name in named if name != "project"]
    assert chosen == EngineChoice(next(iter(engines), None), next(iter(named), None))


@pytest.mark.soak
def test_what_a_step_says_is_left_where_its_spec_wants_it_and_every_event_tells_how(
    world: World, worker: Worker
) -> None:
    add_with_model(world.runtime, "echo", ECHO)
    external = "Say something about whales.\n"
    outputs = {"protocol": "outputs/exec.md", "aux": {"mirror": "outputs/mirror.md", "far": "docs/far.md"}}
    run_id = lay_out(
        world,
        {"a": step(None, engine_id="echo", model="m-1", prompt_ref="prompts/external.md", outputs=outputs)},
        {"prompts/external.md": external, "docs/index.md": "# Docs\n"},
        start=False,
    )
    [clone] = world.home.glob("projects/*/remote")
    before = blobs(clone, NAME)
    with world.ledger.write(actor="test") as tx:
        start_protocol(tx, world.runtime, run_id)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    root = f".protocols/{NAME}"
    places = {
        "protocol": f"{root}/outputs/exec.md",
        "aux": {"mirror": f"{root}/outputs/mirror.md", "far": "docs/far.md"},
    }
    for place in (places["protocol"], *places["aux"].values()):
        said = world.git("show", f"{NAME}:{place}")
        assert said.startswith("model m-1 was told:")
        assert external.strip() in said
    [started] = told(world, run_id, "step_started")
    [completed] = told(world, run_id, "step_completed")
    for event in (started, completed):
        assert (event.data["engine_id"], event.data["model"]) == ("echo", "m-1")
        assert event.data["prompt_versions"] == {"exec": version(external)}
    assert completed.data["outputs"] == places
    # The contract is as it was: only the log has grown.
    after = blobs(world.remote, NAME)
    changed = {path for path in before if after.get(path) != before[path]}
    assert changed == {f"{root}/log.md"}


def blobs(repository: Path, branch: str) -> dict[str, str]:
    """The content of every file of a branch, by its hash."""
    lines = (line.split("\t") for line in git(repository, "ls-tree", "-r", branch).splitlines())
    return {path: entry.split()[2] for entry, path in lines}


@pytest.mark.soak
def test_an_imported_step_is_told_the_specification_and_its_answer_is_kept_beside_its_prompt(
    world: World, worker: Worker, tmp_path: Path
) -> None:
    add_with_model(world.runtime, "echo", ECHO)
    work = write(
        tmp_path / "work",
        {
            ".codemachine/config/main.agents.js": "export default [{ id: 'sing', promptPath: 'prompts/sing.md',"
            " engineId: 'echo', model: 'm-2' }];",
            ".codemachine/prompts/sing.md": "Sing.\n",
            ".codemachine/inputs/specifications.md": "It is about whales.\n",
        },
    )
    with world.ledger.read() as tx:
        open_clone(world.runtime, get_project(tx, world.project_id)).close()
    run_id = import_workspace(
        world.runtime, world.project_id, protocol_name=NAME, workspace_path=work, actor="test"
    )
    with world.ledger.write(actor="test") as tx:
        start_protocol(tx, world.runtime, run_id)
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    prompt = world.git("show", f"{NAME}:.protocols/{NAME}/prompts/00-sing.md") + "\n"
    assert "It is about whales." in prompt
    answer = f".protocols/{NAME}/outputs/sing.md"
    assert "It is about whales." in world.git("show", f"{NAME}:{answer}")
    [event] = told(world, run_id, "codemachine_step_completed")
    assert event.data["outputs"] == {"protocol": None, "aux": {"codemachine": answer}}
    assert (event.data["engine_id"], event.data["model"]) == ("echo", "m-2")
    assert event.data["prompt_versions"]["exec"] == version(prompt)
    types = [each.type for each in told(world, run_id, "step_started", event.type, "step_completed")]
    assert types == ["step_started", "codemachine_step_completed", "step_completed"]


@pytest.mark.soak
def test_a_prompt_that_is_not_there_fails_the_step_and_says_what_to_do(world: World, worker: Worker) -> None:
    run_id = lay_out(world, {"a": step(None), "b": step("write b.txt 1")})
    assert finished(world, run_id) is RunStatus.BLOCKED
    first, second = world.steps(run_id)
    assert (first.status, second.status) == (FAILED, StepStatus.PENDING)
    [event] = told(world, run_id, "spec_validation_error")
    assert (event.step_id, event.message) == (first.step_id, first.reason)
    assert "00-a.md" in (first.reason or "")
    assert "commit it under" in (world.protocol(run_id).reason or "")
    with world.ledger.read() as tx:
        assert list_attempts(tx, first.step_id) == []


@pytest.mark.soak
def test_the_reviewer_of_the_spec_is_asked_with_its_prompt_and_model(world: World, worker: Worker) -> None:
    add_with_model(world.runtime, "inspector", INSPECTOR, edits_files=False)
    prompt = "Be the inspector.\n"
    qa = {"policy": "full", "prompt": "qa/own.md", "engine_id": "inspector", "model": "m-qa"}
    run_id = lay_out(world, {"a": step("write a.txt one", qa=qa)}, {"qa/own.md": prompt})
    assert finished(world, run_id) is RunStatus.COMPLETED, world.protocol(run_id).reason
    [passed] = told(world, run_id, "qa_passed")
    assert passed.data["prompt_versions"]["qa"] == version(prompt)
    with world.ledger.read() as tx:
        [attempt] = list_attempts(tx, world.steps(run_id)[0].step_id)
        kept = of_run(tx, run_id)
    [page] = [each for each in kept if each.name == "quality-report.md"]
    assert page.attempt_id == attempt.id
    assert b"reviewer: inspector, model m-qa" in world.ledger.artifacts.read(page.sha256)
    reports = [
        json.loads(world.ledger.artifacts.read(each.sha256)) for each in kept if each.name == "qa.json"
    ]
    assert [(each["outcome"], each["reviewer"]) for each in reports] == [("passed", "inspector")]


@pytest.mark.soak
def test_light_and_skipped_reviews_are_done_with_when_their_step_is(world: World, worker: Worker) -> None:
    change_settings(world.runtime, "protocols", fixes=0)
    light = {"policy": "light"}
    run_id = lay_out(
        world,
        {
            "skipped": step("write s.txt bad"),
            "light": step("write l.txt good", qa=light),
            "refused": step("write r.txt bad", qa=light),
        },
    )
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert [each.status for each in world.steps(run_id)] == [DONE, DONE, FAILED]
    skipped, passed, failed = told(world, run_id, "qa_skipped_policy", "qa_passed", "qa_failed")
    assert [each.step_id for each in (skipped, passed, failed)] == [
        each.step_id for each in world.steps(run_id)
    ]
    assert not told(world, run_id, "qa_enqueued")
    with world.ledger.read() as tx:
        assert len(list_jobs(tx, run_id=run_id)) == 1
        sessions = [each for each in told(world, run_id, "session.ended") if each.data["role"] == "reviewer"]
    assert len(sessions) == 2


@pytest.mark.soak
def test_a_review_without_the_repository_waits_and_says_what_to_do(world: World, worker: Worker) -> None:
    change_settings(world.runtime, "protocols", fixes=0)
    run_id = lay_out(world, {"a": step("write a.txt bad", qa={"policy": "full"})})
    assert finished(world, run_id) is RunStatus.BLOCKED
    [clone] = world.home.glob("projects/*/remote")
    clone.rename(world.home / "aside")
    change_settings(world.runtime, "projects", auto_clone=False)
    [failed] = world.steps(run_id)
    with world.ledger.write(actor="test") as tx:
        run_qa(tx, world.runtime, failed.step_id)
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert [each.status for each in world.steps(run_id)] == [StepStatus.BLOCKED]
    assert "git clone" in (world.protocol(run_id).reason or "")
    [of_run_event] = told(world, run_id, "repo_missing")
    [of_step] = told(world, run_id, "qa_blocked_repo")
    assert (of_step.step_id, of_step.message) == (failed.step_id, of_run_event.message)

    # Put back, it is reviewed as it was asked for, and not done again.
    (world.home / "aside").rename(clone)
    with world.ledger.write(actor="test") as tx:
        resume_run(tx, world.runtime, run_id)
    eventually(lambda: bool(told(world, run_id, "qa_judged")) and world.stands(run_id))
    assert [each.status for each in world.steps(run_id)] == [FAILED]
    with world.ledger.read() as tx:
        assert len(list_attempts(tx, failed.step_id)) == 1


@pytest.mark.soak
@pytest.mark.parametrize("policy", [BudgetPolicy.STRICT, BudgetPolicy.WARN])
def test_a_prompt_beyond_the_budget_is_refused_or_told(
    world: World, worker: Worker, policy: BudgetPolicy
) -> None:
    limit(world.runtime, policy, attempt=5)
    run_id = lay_out(world, {"a": step("write a.txt one\n" + "A long prompt. " * 80)})
    status = finished(world, run_id)
    [only] = world.steps(run_id)
    with world.ledger.read() as tx:
        attempts = list_attempts(tx, only.step_id)
    if policy is BudgetPolicy.WARN:
        assert (status, only.status) == (RunStatus.COMPLETED, DONE)
        assert told(world, run_id, "budget_warning")
        return
    assert (status, only.status, attempts) == (RunStatus.BLOCKED, FAILED, [])
    assert len(told(world, run_id, "budget_exceeded")) == 1
    assert "raise budgets.attempt.tokens" in (world.protocol(run_id).reason or "")


@pytest.mark.soak
@pytest.mark.parametrize("most", [900, 1100])
def test_the_budget_of_a_protocol_counts_what_all_of_its_steps_used(
    world: World, worker: Worker, most: int
) -> None:
    # The second limit is not used up after the first step, but too small for another prompt.
    add_agent(world.runtime, "counting", COUNTING, usage_pattern=r"used (?P<input>\d+) tokens")
    limit(world.runtime, run=most)
    counted = {"engine_id": "counting"}
    run_id = lay_out(world, {"a": step("Count.", **counted), "b": step("Count again.", **counted)})
    assert finished(world, run_id) is RunStatus.BLOCKED
    assert [each.status for each in world.steps(run_id)] == [DONE, FAILED]
    assert f"budget of run {run_id}" in (world.protocol(run_id).reason or "")
    with world.ledger.read() as tx:
        assert list_attempts(tx, world.steps(run_id)[1].step_id) == []
