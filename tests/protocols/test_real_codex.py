"""Protocols by real agents: the Codex CLI plans and carries out, a plain model or Claude reviews; models are scripted.

Real are the agents, git, its bare remote, the sandbox, the API and the worker. The forge is a stand-in.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from ratchet.config import Loaded
from ratchet.kernel import RunStatus
from ratchet.ledger.projects import change_project, get_project
from ratchet.ledger.tables import artifact_contents
from ratchet.ledger.usage import SessionRow, list_sessions, total
from ratchet.modelserver import ModelServer, Turn, answer, call, say
from ratchet.protocols.actions import create_protocol, start_protocol
from ratchet.runtime import Worker
from tests.engines.contract import KEY
from tests.forges.github_stand_in import GitHubStandIn
from tests.modelserver.fixtures import model_server
from tests.protocols.planning.plans import plan, step
from tests.protocols.test_through_ci import CHECKS, awaited, client, github, report
from tests.protocols.test_through_ci import world as onboarded_world
from tests.protocols.world import World
from tests.runtime.worker_process import load
from tests.waiting import eventually

__all__ = ["client", "github", "model_server", "onboarded_world"]
pytestmark = [pytest.mark.soak, pytest.mark.parametrize("url", ["sqlite"], indirect=True)]

_CODEX, _CLAUDE, _PLAIN = "protocol-codex", "protocol-claude", "protocol-reviewer"
_FINDING = "a.txt says bad, and the step asks for good"
_NEEDS = "Write good into a.txt."


@pytest.fixture
def loaded(url: str, tmp_path: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    """Settings as a person would write them, whose endpoints are those of the scripted models."""
    monkeypatch.setenv("MODEL_KEY", KEY)
    (tmp_path / "ratchet.toml").write_text(
        '[protocols]\nplanner = "codex"\nengine = "codex"\nreviewer = "llm"\ndecompose = false\n'
        f'[engines.codex]\nbase_url = "{model_server.openai_url(_CODEX)}"\nmodel = "gpt-5.5"\n'
        'key_variable = "MODEL_KEY"\n'
        f'[engines.claude]\nbase_url = "{model_server.anthropic_url(_CLAUDE)}"\nmodel = "claude-scripted"\n'
        'key_variable = "MODEL_KEY"\n'
        '[llm]\ndefault = "local/scripted"\n'
        f'[llm.endpoints.local]\nbase_url = "{model_server.openai_url(_PLAIN)}"\nkey_variable = "MODEL_KEY"\n'
    )
    return load(tmp_path, url)


def carries_out(command: str, said: str) -> list[Turn]:
    return [call("exec_command", cmd=command), say(said)]


def verdict(word: str, *findings: dict[str, Any]) -> Turn:
    return answer({"verdict": word, "summary": f"It is a {word}.", "findings": list(findings)})


def passes() -> Turn:
    return verdict("pass")


def fails() -> Turn:
    return verdict("fail", {"severity": "major", "file": "a.txt", "line": 1, "message": _FINDING})


def know_check(world: World) -> None:
    """The project's own check runs beside the review."""
    with world.ledger.write(actor="test") as tx:
        checks = [{"name": "check", "argv": [sys.executable, "check.py"], "kind": "test"}]
        facts = get_project(tx, world.project_id).facts
        change_project(tx, world.project_id, facts={**facts, "checks": checks, "required_checks": CHECKS})


def sessions(world: World, run_id: int) -> list[SessionRow]:
    """Oldest first."""
    with world.ledger.read() as tx:
        return sorted(list_sessions(tx, run_id=run_id), key=lambda each: each.id)


def attempts(client: TestClient, step_id: int) -> list[dict[str, Any]]:
    """As the API shows them, oldest first."""
    found: list[dict[str, Any]] = client.get(f"/steps/{step_id}").json()["attempts"]["items"]
    return found[::-1]


def content(client: TestClient, link: str) -> str:
    found = client.get(link)
    assert found.status_code == 200, found.text
    return found.text


@pytest.mark.soak
def test_codex_plans_and_carries_out_a_change_that_goes_all_the_way(
    github: GitHubStandIn,
    client: TestClient,
    onboarded_world: World,
    model_server: ModelServer,
) -> None:
    world = onboarded_world
    know_check(world)
    codex = model_server.script(
        _CODEX,
        [
            call("exec_command", cmd="cat README.md"),
            answer(plan(step("00-setup.md", qa="light"), step("01-a.md", content=_NEEDS))),
            *carries_out("echo ready > setup.txt", "Ready."),
            *carries_out("echo bad > a.txt", "Wrote a.txt."),
            *carries_out("echo good > a.txt", "Mended a.txt."),
            *carries_out("echo good. > a.txt", "Mended what CI found."),
        ],
    )
    reviewer = model_server.script(_PLAIN, [passes(), fails(), passes(), passes()])
    made = client.post(
        f"/projects/{world.project_id}/protocols",
        json={"protocol_name": "0001-change", "description": "Say something good."},
    )
    assert made.status_code == 200, made.text
    run_id = made.json()["id"]
    assert client.post(f"/protocols/{run_id}/actions/start").status_code == 200

    report(client, github, awaited(world, run_id, 0), lint="success", test="success")
    first = awaited(world, run_id, 1)
    assert world.git("show", f"{first}:a.txt") == "good"
    report(client, github, first, lint="failure", test="success")
    eventually(lambda: world.stands(run_id) or world.steps(run_id)[1].commit != first)
    fixed = awaited(world, run_id, 1)
    report(client, github, fixed, lint="success", test="success")
    eventually(lambda: world.stands(run_id))
    assert world.protocol(run_id).status is RunStatus.COMPLETED, world.protocol(run_id).reason

    assert world.git("rev-parse", "0001-change") == world.protocol(run_id).pushed == fixed
    assert world.git("diff", "--name-only", "0001-change~2", "0001-change").splitlines() == [
        ".protocols/0001-change/log.md",
        "a.txt",
    ]
    assert [pull["draft"] for pull in github.pulls.values()] == [False]
    # Each was told what the one before had to say.
    assert (codex.left, codex.problems, reviewer.left, reviewer.problems) == (0, [], 0, [])
    asked = [request.said for request in codex.requests]
    assert "Say something good." in asked[0]
    assert "# A project" in asked[1]
    assert _FINDING not in asked[4]
    assert _FINDING in asked[6]
    assert "the log of lint: line 7 is wrong" in asked[8]
    assert "+bad" in reviewer.requests[1].said
    # All of it is kept: who did what, what that used, what they were asked and what they said.
    held = sessions(world, run_id)
    assert [(each.engine, each.role) for each in held[:3]] == [
        ("codex", "planner"),
        ("codex", "author"),
        ("llm", "reviewer"),
    ]
    assert all(each.transcript and each.failure is None and not each.simulated for each in held)
    with world.ledger.read() as tx:
        spent = total(tx, "run", run_id)
    turns = len(codex.requests) + len(reviewer.requests)
    assert (spent.input_tokens, spent.output_tokens) == (100 * turns, 10 * turns)
    refused, passed, last = attempts(client, world.steps(run_id)[1].step_id)
    assert [each["outcome"] for each in (refused, passed, last)] == ["failed", "passed", "passed"]
    assert refused["usage"]["input_tokens"] == 300
    assert _NEEDS in content(client, refused["links"]["prompt"])
    assert _FINDING in content(client, passed["links"]["prompt"])
    assert "echo bad > a.txt" in content(client, refused["links"]["transcripts"]["author"])
    assert "+bad" in content(client, refused["links"]["diff"])
    kept = [path.read_bytes() for path in (world.home / "artifacts").rglob("*") if path.is_file()]
    with world.ledger.read() as tx:
        kept += tx.connection.execute(sa.select(artifact_contents.c.content)).scalars()
    assert kept
    assert not any(KEY.encode() in content for content in kept)


@pytest.mark.soak
def test_claude_carries_out_what_codex_reviews_in_its_files(
    world: World,
    worker: Worker,
    model_server: ModelServer,
) -> None:
    protocols = world.runtime.settings.protocols.model_copy(update={"engine": "claude", "reviewer": "codex"})
    world.runtime.settings = world.runtime.settings.replace(protocols=protocols)
    claude = model_server.script(
        _CLAUDE,
        [
            *(call("Bash", command="echo ready > setup.txt"), say("Ready.")),
            *(call("Bash", command="echo good > a.txt"), say("Wrote a.txt.")),
        ],
    )
    codex = model_server.script(
        _CODEX,
        [
            answer(plan(step("00-setup.md", qa="skip"), step("01-a.md", content=_NEEDS))),
            call("exec_command", cmd="cat a.txt; echo bad > a.txt"),
            passes(),
        ],
    )
    with world.ledger.write(actor="test") as tx:
        run_id = create_protocol(tx, world.runtime, world.project_id, "0001-change", description="Say good.")
        start_protocol(tx, world.runtime, run_id)
    eventually(lambda: world.stands(run_id))
    assert world.protocol(run_id).status is RunStatus.COMPLETED, world.protocol(run_id).reason
    assert (claude.left, claude.problems, codex.left, codex.problems) == (0, [], 0, [])
    assert "good" in codex.requests[-1].results[-1]
    # What a reviewer does to its copy is no part of the change.
    assert world.git("show", "0001-change:a.txt") == "good"
    held = sessions(world, run_id)
    assert [(each.engine, each.role) for each in held] == [
        ("codex", "planner"),
        ("claude", "author"),
        ("claude", "author"),
        ("codex", "reviewer"),
    ]
    assert all(each.transcript and each.usage.tokens for each in held)
