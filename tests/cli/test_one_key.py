"""One key in the environment and nothing else: a protocol from its description to a reviewed commit."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ratchet.modelserver import ModelServer, Turn, call, say
from tests.cli.conftest import Ratchet
from tests.judges.reviewer import review
from tests.modelserver.fixtures import model_server
from tests.projects.test_environments import FILES, make_wheel
from tests.protocols.world import encode_plan, git

__all__ = ["model_server"]
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
PLAN = base64.b64decode(
    encode_plan(
        [
            {"filename": "00-setup.md", "content": "Nothing to do.", "step_type": "setup", "qa": "skip"},
            {"filename": "01-greet.md", "content": "Write greet.txt.", "step_type": "work", "qa": "full"},
        ]
    )
).decode()


def model(body: dict[str, Any]) -> Turn:
    """Plans, works and reviews, by what it is asked for."""
    wanted = json.dumps(body.get("text", {}))
    if "step_files" in wanted:
        return say(PLAN)
    if "verdict" in wanted:
        return say(json.dumps(review("pass")))
    if "function_call_output" in json.dumps(body["input"]):
        return say("Done.")
    work = "Write greet.txt." in json.dumps(body["input"])
    return call("exec_command", cmd="echo hello > greet.txt" if work else "echo ready > setup.txt")


@pytest.fixture
def only_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A repository to work in, and nothing to pay with but a key of OpenAI."""
    for variable in ("ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    monkeypatch.setenv("OPENAI_API_KEY", "the-only-key")
    place = tmp_path / "shop"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "README.md").write_text("A shop.\n")
    git(place, "add", "-A")
    git(place, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "Begin")
    monkeypatch.chdir(place)
    return monkeypatch


def test_without_a_reviewer_that_the_policy_accepts_nothing_is_begun(
    ratchet: Ratchet, only_key: pytest.MonkeyPatch, model_server: ModelServer
) -> None:
    script = model_server.script("one-key-independent", [])
    only_key.setenv(
        "RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL", model_server.openai_url("one-key-independent")
    )
    only_key.setenv("RATCHET_PROTOCOLS__REVIEWER", "independent")
    done = ratchet("protocol", "new", "Greet people.", "--run")
    assert done.code == 1
    assert "no engine can review what codex makes" in done.err
    assert "ANTHROPIC_API_KEY is not set" in done.err
    assert script.requests == []
    assert ratchet("runs", "list", "--json").json == []


@pytest.mark.soak
@pytest.mark.parametrize(("only", "mark"), [(None, "another model"), ("same", "same model")])
def test_a_protocol_is_planned_carried_out_and_reviewed_with_one_key(
    ratchet: Ratchet,
    model_server: ModelServer,
    only_key: pytest.MonkeyPatch,
    only: str | None,
    mark: str,
) -> None:
    name = f"one-key-{only or 'other'}"
    script = model_server.script(name, model)
    only_key.setenv("RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL", model_server.openai_url(name))
    if only:
        only_key.setenv("RATCHET_PROTOCOLS__MODELS__QA", "gpt-5.5")
    assert ratchet("setup", "--yes").code == 0
    done = ratchet("protocol", "new", "Greet people.", "--run", "--no-wait")
    assert done.code == 0, f"{done.out}\n{done.err}\n{script.problems}"
    [made] = ratchet("protocol", "list", "--json").json
    assert made["status"] == "completed"
    keys = {each.headers["authorization"] for each in script.requests}
    assert keys == {"Bearer the-only-key"}
    shown = ratchet("protocol", "show", str(made["id"])).out
    assert (mark in shown) == (mark == "same model"), shown
    models = {each.body["model"] for each in script.requests}
    assert models == ({"gpt-5.5"} if only else {"gpt-5.5", "gpt-5.4-mini"})


# What an author would try: the tests, a change of the environment, and the network.
TRIES = """\
python3 -m unittest discover -s tests 2>&1 | tail -n 1
npm test 2>&1 | tail -n 1
mkdir -p node_modules/.cache/tool 2>&1 && echo cached
touch "$VIRTUAL_ENV/mark" 2>&1 || touch node_modules/mark 2>&1 || echo both refused
python3 -c "import socket; socket.create_connection(('192.0.2.1', 80), 5)" 2>&1 | tail -n 1
echo hello > greet.txt
"""
PACKAGE = {"scripts": {"test": "node test.js"}, "dependencies": {"tiny": "file:./packages/tiny"}}


@pytest.mark.soak
def test_the_agent_that_writes_code_runs_the_projects_tests_in_its_environment_offline(
    ratchet: Ratchet, model_server: ModelServer, only_key: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shelf").mkdir()
    make_wheel(tmp_path / "shelf", "tinything", "VALUE = 1\n")
    only_key.setenv("PIP_NO_INDEX", "1")
    only_key.setenv("PIP_FIND_LINKS", str(tmp_path / "shelf"))
    files = {
        **FILES,
        "package.json": json.dumps(PACKAGE),
        "packages/tiny/package.json": '{"name": "tiny", "version": "1.0.0"}',
        "packages/tiny/index.js": "exports.VALUE = 1\n",
        "test.js": "console.log('tiny is', require('tiny').VALUE)\n",
        ".gitignore": "node_modules\npackage-lock.json\n",
    }
    for name, text in files.items():
        path = tmp_path / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(tmp_path / "shop", "add", "-A")
    git(tmp_path / "shop", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "More")
    outputs: list[str] = []

    def author(body: dict[str, Any]) -> Turn:
        said = json.dumps(body["input"])
        if "Write greet.txt." in said and "text" not in body.get("text", {}).get("format", {}):
            found = [each["output"] for each in body["input"] if each.get("type") == "function_call_output"]
            outputs.extend(str(each) for each in found)
        turn = model(body)
        if "Write greet.txt." in said and "greet.txt" in str(turn):
            return call("exec_command", cmd=TRIES, yield_time_ms=120_000)
        return turn

    script = model_server.script("author-environment", author)
    only_key.setenv("RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL", model_server.openai_url("author-environment"))
    assert ratchet("setup", "--yes").code == 0
    done = ratchet("protocol", "new", "Greet people.", "--run", "--no-wait")
    assert done.code == 0, f"{done.out}\n{done.err}\n{script.problems}"
    [tried] = {each for each in outputs if "tiny is" in each}
    assert "OK\n" in tried
    assert "tiny is 1" in tried
    assert "cached\n" in tried
    assert "both refused" in tried
    assert "unreachable" in tried or "not permitted" in tried
