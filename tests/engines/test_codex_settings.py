"""Every setting of Codex changes what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.engines import Failure, Request
from ratchet.kernel import Limits
from ratchet.modelserver import ModelServer, call, say
from tests.engines.codex_subject import CodexSubject
from tests.engines.conftest import Place
from tests.engines.contract import fails, propose


@pytest.fixture
def codex(place: Place, model_server: ModelServer) -> CodexSubject:
    return CodexSubject(place, model_server)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("sandbox", "edits"), [("read-only", False), ("workspace-write", True), ("danger-full-access", True)]
)
def test_the_sandbox_decides_whether_files_change(
    codex: CodexSubject, workspace: Path, tmp_path: Path, sandbox: str, edits: bool
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    engine = codex.open(
        call("exec_command", cmd=f"echo x > made; echo x > {outside}/made"),
        say("done"),
        toml=f'sandbox = "{sandbox}"',
    )
    propose(engine, Request("x", workspace))
    assert engine.capabilities.edits_files is edits
    assert (workspace / "made").exists() is edits
    assert list(outside.iterdir()) == []


@pytest.mark.soak
@pytest.mark.parametrize("network", [True, False])
def test_the_network_is_open_to_commands_only_if_so_set(
    codex: CodexSubject, workspace: Path, model_server: ModelServer, network: bool
) -> None:
    port = model_server.url.rpartition(":")[2]
    engine = codex.open(
        call("exec_command", cmd=f"bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo x > reached"),
        say("done"),
        toml=f"network = {str(network).lower()}",
    )
    propose(engine, Request("x", workspace))
    assert (workspace / "reached").exists() is network


@pytest.mark.soak
def test_named_variables_reach_commands(codex: CodexSubject, workspace: Path) -> None:
    engine = codex.open(
        call("exec_command", cmd="echo $JAVA_HOME > seen"),
        say("done"),
        toml='environment = ["JAVA_HOME"]',
        environment={"JAVA_HOME": "/opt/java"},
    )
    propose(engine, Request("x", workspace))
    assert (workspace / "seen").read_text() == "/opt/java\n"


@pytest.mark.soak
def test_the_model_of_the_request_is_stronger_than_that_of_the_name_and_of_the_settings(
    place: Place, model_server: ModelServer, workspace: Path
) -> None:
    script = model_server.script("models", [say("x")] * 3)
    toml = f'[engines.codex]\nmodel = "set"\nbase_url = "{model_server.openai_url("models")}"'
    propose(place.open("codex", toml), Request("x", workspace))
    propose(place.open("codex:named", toml), Request("x", workspace))
    session = propose(place.open("codex:named", toml), Request("x", workspace, model="asked"))
    assert [each.body["model"] for each in script.requests] == ["set", "named", "asked"]
    assert session.model == "asked"


def test_the_effort_is_asked_of_the_model(codex: CodexSubject, workspace: Path) -> None:
    propose(codex.open(say("x"), model="gpt-5.5", toml='effort = "low"'), Request("x", workspace))
    assert codex.script is not None
    assert codex.script.requests[0].body["reasoning"]["effort"] == "low"


def test_the_path_names_the_program(codex: CodexSubject, workspace: Path) -> None:
    failed = fails(codex.open(say("x"), toml='path = "/no/such/codex"'), Request("x", workspace))
    assert "/no/such/codex" in str(failed)


def test_a_budget_of_money_for_a_model_without_a_price_is_refused_before_it_costs_anything(
    codex: CodexSubject, workspace: Path
) -> None:
    failed = fails(codex.says("x"), Request("x", workspace, limits=Limits(cost_usd=1)))
    assert failed.failure is Failure.MISSING
    assert '[llm.prices."mock-model"]' in (failed.hint or "")
    assert "price of mock-model is not known" in str(failed)
    assert codex.script is not None
    assert codex.script.requests == []


def test_a_model_of_ollama_costs_nothing_and_is_held_to_a_budget_of_money(
    place: Place, model_server: ModelServer, workspace: Path
) -> None:
    model_server.script("of-ollama", [say("x")])
    around = {"OLLAMA_HOST": model_server.openai_url("of-ollama").removesuffix("/v1")}
    engine = place.open("codex:ollama/mock-model", "", around)
    session = propose(engine, Request("x", workspace, limits=Limits(cost_usd=1)))
    assert session.usage.tokens > 0
    assert session.usage.whole_cost_usd == 0


def test_sessions_are_kept_for_as_long_as_is_set(codex: CodexSubject, workspace: Path) -> None:
    engine = codex.open(say("x"), toml="resume_days = 3")
    failed = fails(engine, Request("x", workspace, resume="0193d4c5-0000-7000-8000-000000000000"))
    assert "kept for 3 days" in (failed.hint or "")
