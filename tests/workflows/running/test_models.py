"""Steps that ask a model: prompts, tokens as they come, usage on record, and answers that are not asked for twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.flowkit.spec import StepType, ToolDefinition, WorkflowInput, WorkflowSpec, WorkflowStep
from ratchet.ledger import EventFilter
from ratchet.ledger import events as log
from ratchet.ledger.runs import get_run
from ratchet.ledger.tools import call_stats
from ratchet.ledger.usage import list_sessions
from ratchet.modelserver import ModelServer, fail, say
from ratchet.runtime import Runtime, Worker, open_ledger, open_runtime, resume_run
from ratchet.tools.caller import GROUP
from ratchet.tools.definition import LlmBody
from ratchet.tools.models import asked_model
from ratchet.workflows.profile import profile_run
from ratchet.workflows.runs.plan import tools_of_steps
from ratchet.workflows.views import progress
from tests.modelserver.fixtures import model_server
from tests.runtime.deaths import die_at
from tests.runtime.fleet import Fleet
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.workflows import interceptors
from tests.workflows.running.settled import run, settle, start

__all__ = ["model_server"]
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def write_home(home: Path, model_server: ModelServer) -> None:
    (home / "ratchet.toml").write_text(
        f"""
        [llm]
        default = "local/scripted"
        retry_base_seconds = 0.01
        tries = 1
        [llm.endpoints.local]
        base_url = "{model_server.openai_url("flow")}"
        key_variable = "MODEL_KEY"
        [llm.prices."priced"]
        input = 1.0
        output = 1.0
        """
    )


@pytest.fixture
def asked(
    model_server: ModelServer, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ModelServer, Runtime]]:
    """A runtime with a worker whose models are those of the server."""
    monkeypatch.setenv("MODEL_KEY", "secret-key")
    write_home(tmp_path, model_server)
    loaded = load(tmp_path, url)
    with open_ledger(loaded) as ledger:
        runtime = open_runtime(loaded, ledger, make_kinds())
        worker = Worker(runtime)
        worker.start()
        yield model_server, runtime
        worker.stop(drain_seconds=0)


def tale() -> WorkflowSpec:
    return WorkflowSpec(
        "tale",
        inputs=(WorkflowInput("topic"),),
        steps=(
            WorkflowStep(
                "write",
                StepType.LLM_CALL,
                prompt_template="Write about {topic}.",
                input_mapping={"topic": "inputs.topic"},
            ),
            WorkflowStep(
                "shorten",
                StepType.LLM_CALL,
                tool_name="editor",
                prompt_template="Shorten: ${steps.write.output}",
            ),
        ),
        portable=True,
        tool_definitions={
            "editor": ToolDefinition("editor", tool_type="llm", system_prompt="You are an editor.")
        },
    )


def test_answers_go_from_step_to_step_and_are_made_again_by_the_next_run(
    asked: tuple[ModelServer, Runtime],
) -> None:
    server, runtime = asked
    script = server.script("flow", [say("A long {tale} of ratchets."), say("Ratchets.")])
    done = run(runtime, tale(), {"topic": "ratchets"})
    assert (done["status"], done["outputs"]) == ("completed", {"shorten": "Ratchets."})
    first, second = [str(request.body) for request in script.requests]
    assert "Write about ratchets." in first
    assert "Shorten: A long {tale} of ratchets." in second
    assert "You are an editor." in second
    assert done["steps"]["write"]["metrics"]["tokens"] > 0
    with runtime.ledger.read() as tx:
        assert len(list_sessions(tx, run_id=done["run_id"])) == 2
        tokens = log.since(tx.connection, where=EventFilter(run_id=done["run_id"], type="step.token"))
    heard = "".join(event.data["text"] for event in tokens if event.data["name"] == "write")
    assert heard == "A long {tale} of ratchets."
    server.script("flow", [say("Another tale."), say("Another.")])
    again = run(runtime, tale(), {"topic": "ratchets"})
    assert again["outputs"] == {"shorten": "Another."}


def caching(spec: WorkflowSpec) -> WorkflowSpec:
    return replace(spec, steps=tuple(replace(step, cache=True) for step in spec.steps))


def test_answers_of_models_are_used_again_where_a_step_asks_for_it_and_the_model_is_the_same(
    asked: tuple[ModelServer, Runtime],
) -> None:
    server, runtime = asked
    script = server.script("flow", [say("A tale of ratchets."), say("Ratchets.")])
    run(runtime, caching(tale()), {"topic": "ratchets"})
    again = run(runtime, caching(tale()), {"topic": "ratchets"})
    assert [step["cached"] for step in again["steps"].values()] == [True, True]
    assert len(script.requests) == 2
    cold, warm = LlmBody(), LlmBody(model="local/other")
    settings = runtime.settings
    assert asked_model(cold, settings, {}) == asked_model(None, settings, {}) == "llm/local/scripted/"
    assert asked_model(warm, settings, {}) == "llm/local/other/"


@pytest.mark.parametrize(("temperature", "calls"), [(1.0, 40), (0.7, 40), (0.0, 1)])
def test_equal_questions_get_answers_of_their_own_unless_the_model_has_no_choice(
    asked: tuple[ModelServer, Runtime], temperature: float, calls: int
) -> None:
    """Voting and the best of many need them."""
    server, runtime = asked
    script = server.script("flow", [say(f"answer {number}") for number in range(80)])
    sampler = ToolDefinition("sampler", tool_type="llm", temperature=temperature)
    step = WorkflowStep("vote", tool_name="sampler", prompt_template="Heads or tails?")
    if calls == 1:
        spec = WorkflowSpec("vote", steps=(step,), portable=True, tool_definitions={"sampler": sampler})
        assert [run(runtime, spec)["steps"]["vote"]["cached"] for _ in range(2)] == [False, True]
    else:
        many = replace(step, for_each=list(range(calls)))
        spec = WorkflowSpec("vote", steps=(many,), portable=True, tool_definitions={"sampler": sampler})
        assert len(set(run(runtime, spec)["outputs"]["vote"])) == calls
    assert len(script.requests) == calls


def test_a_key_that_is_refused_blocks_the_run_and_only_what_is_left_is_asked_when_it_is_resumed(
    asked: tuple[ModelServer, Runtime],
) -> None:
    server, runtime = asked
    server.script("flow", [say("A long tale."), fail(401)])
    stands = run(runtime, tale(), {"topic": "keys"})
    assert (stands["status"], stands["steps"]["shorten"]["status"]) == ("blocked", "blocked")
    with runtime.ledger.read() as tx:
        reason = get_run(tx, stands["run_id"]).reason or ""
    assert reason.startswith("step shorten: local/scripted refused the key")
    assert "export MODEL_KEY=" in reason
    script = server.script("flow", [say("A tale.")])
    with runtime.ledger.write(actor="test") as tx:
        resume_run(tx, runtime, stands["run_id"])
    done = settle(runtime.ledger, stands["run_id"])
    assert (done["status"], done["outputs"]) == ("completed", {"shorten": "A tale."})
    assert len(script.requests) == 1


def test_costs_that_are_known_in_part_say_what_is_missing(asked: tuple[ModelServer, Runtime]) -> None:
    server, runtime = asked
    server.script("flow", [say("A tale."), say("A long tale."), say("Short.")])
    editor = ToolDefinition("editor", tool_type="llm", model="local/priced", system_prompt="Be brief.")
    spec = replace(tale(), tool_definitions={"editor": editor})
    done = run(runtime, spec, {"topic": "prices"})
    write, shorten = (done["steps"][name]["metrics"] for name in ("write", "shorten"))
    assert (write["cost_microusd"], write["unpriced_tokens"]) == (0, write["tokens"])
    assert (shorten["cost_microusd"] > 0, shorten["unpriced_tokens"]) == (True, 0)
    with runtime.ledger.read() as tx:
        found = profile_run(tx, done["run_id"])
        row = get_run(tx, done["run_id"])
        tool = tools_of_steps(tx, row)["editor"]
        stats = call_stats(tx, tool.called_id or 0)
        shown = progress(tx, row)
    assert (found.cost_microusd, found.unpriced_tokens) == (shorten["cost_microusd"], write["tokens"])
    assert (shown["cost_microusd"], shown["unpriced_tokens"]) == (shorten["cost_microusd"], write["tokens"])
    assert (stats.cost_microusd, stats.unpriced_tokens) == (shorten["cost_microusd"], 0)


def test_a_tool_to_fall_back_on_is_used_instead_of_blocking(asked: tuple[ModelServer, Runtime]) -> None:
    server, runtime = asked
    server.script("flow", [fail(401)])
    upper = ToolDefinition(
        "upper", tool_type="python", source_code="def run(topic: str) -> str:\n    return topic.upper()\n"
    )
    spec = WorkflowSpec(
        "tale",
        inputs=(WorkflowInput("topic"),),
        steps=(
            WorkflowStep(
                "write",
                StepType.LLM_CALL,
                prompt_template="Write about {topic}.",
                input_mapping={"topic": "inputs.topic"},
                fallback_tool="upper",
            ),
        ),
        portable=True,
        tool_definitions={"upper": upper},
    )
    done = run(runtime, spec, {"topic": "keys"})
    assert (done["status"], done["outputs"]) == ("completed", {"write": "KEYS"})


@pytest.mark.soak
def test_a_model_that_fails_fails_the_step_and_nothing_is_made_up(asked: tuple[ModelServer, Runtime]) -> None:
    server, runtime = asked
    server.script("flow", [fail(500), fail(500)])
    done = run(runtime, tale(), {"topic": "nothing"})
    assert (done["status"], done["outputs"]) == ("failed", {})
    assert done["error"].startswith("write: ")
    assert done["steps"]["shorten"]["status"] == "skipped"


@pytest.mark.soak
def test_an_answer_that_is_on_record_is_not_paid_for_again_after_a_kill(
    model_server: ModelServer,
    runtime: Runtime,
    fleet: Fleet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MODEL_KEY", "secret-key")
    write_home(tmp_path, model_server)
    script = model_server.script("flow", [say("A long tale."), say("A tale.")])
    announced = tmp_path / "announced" / "reaper-1.0.dist-info"
    announced.mkdir(parents=True)
    (announced / "METADATA").write_text("Metadata-Version: 2.1\nName: reaper\nVersion: 1.0\n")
    (announced / "entry_points.txt").write_text(f"[{GROUP}]\nreaper = {interceptors.__name__}:Reaper\n")
    monkeypatch.setenv(interceptors.HOME, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(announced.parent))
    die_at(tmp_path, "editor answered")
    mortal = fleet.spawn()
    # Only what was paid for is known again: without the cache every step would be run again.
    run_id = start(runtime, tale(), {"topic": "ratchets"}, cached=False)
    assert mortal.wait(timeout=180) == -signal.SIGKILL
    monkeypatch.delenv("PYTHONPATH")
    fleet.spawn()
    done = settle(runtime.ledger, run_id, seconds=180)
    assert (done["status"], done["outputs"]) == ("completed", {"shorten": "A tale."})
    assert len(script.requests) == 2
    assert done["steps"]["shorten"]["metrics"]["tokens"] > 0
    with runtime.ledger.read() as tx:
        assert len(list_sessions(tx, run_id=run_id)) == 2
