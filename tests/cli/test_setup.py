"""`ratchet setup`: what is found, what is chosen, and what is written."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ratchet.modelserver import ModelServer
from tests.cli.conftest import Ratchet
from tests.engines.test_logins import codex_file, token
from tests.modelserver.fixtures import model_server
from tests.waiting import eventually

__all__ = ["model_server"]

pytestmark = [
    pytest.mark.no_ledger,
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
]
NOTHING = dict.fromkeys(
    ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"), ""
)
# Nobody listens there.
NOWHERE = {"OLLAMA_HOST": "127.0.0.1:9"}


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without keys, logins and local models."""
    for name, value in {**NOTHING, **NOWHERE, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def written(home: Path) -> dict[str, Any]:
    return tomllib.loads((home / "ratchet.toml").read_text())


@pytest.mark.parametrize(
    ("provider", "author", "reviewer", "default"),
    [
        ("openai", ("codex", "gpt-5.5"), ("codex", "openai/gpt-5.4-mini"), "gpt-5.5"),
        (
            "anthropic",
            ("claude", "claude-sonnet-5"),
            ("claude", "anthropic/claude-haiku-4-5"),
            "claude-sonnet-5",
        ),
    ],
)
def test_one_key_is_enough(
    ratchet: Ratchet,
    home: Path,
    alone: pytest.MonkeyPatch,
    model_server: ModelServer,
    provider: str,
    author: tuple[str, str],
    reviewer: tuple[str, str],
    default: str,
) -> None:
    name = f"setup-{provider}"
    model_server.script(
        name, [], key="the-only-key", models=[author[1], default, reviewer[1].partition("/")[2]]
    )
    url = model_server.anthropic_url(name) if provider == "anthropic" else model_server.openai_url(name)
    alone.setenv(f"{provider.upper()}_API_KEY", "the-only-key")
    alone.setenv(f"RATCHET_LLM__ENDPOINTS__{provider.upper()}__BASE_URL", url)
    done = ratchet("setup", "--yes", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["unverified"] is None
    assert "verified" not in done.err
    assert (found["author"]["engine"], found["author"]["model"]) == author
    assert (found["reviewer"]["engine"], found["reviewer"]["model"]) == reviewer
    assert found["reviewer"]["independence"] == "another model"
    assert found["default_model"] == default
    assert found["price"]["input"] > 0
    assert found["costs_at_most"] == (
        "stops when $5.00 are used (budgets.run.cost_usd); what is in flight then is still paid"
    )
    settings = written(home)
    assert settings["engines"]["default"] == author[0]
    assert settings["llm"]["default"] == default
    assert settings["budgets"]["run"]["cost_usd"] == 5.0
    assert "the-only-key" not in (home / "ratchet.toml").read_text()


def test_what_is_set_already_stays(
    ratchet: Ratchet, home: Path, alone: pytest.MonkeyPatch, model_server: ModelServer
) -> None:
    model_server.script("setup-kept", [])
    home.mkdir(exist_ok=True)
    text = (
        '# mine\n[llm]\ndefault = "gpt-5.4-mini"  # cheap\n[llm.endpoints.openai]\n'
        f'base_url = "{model_server.openai_url("setup-kept")}"\n[budgets.run]\ntokens = 1000\n'
    )
    (home / "ratchet.toml").write_text(text)
    alone.setenv("OPENAI_API_KEY", "the-only-key")
    done = ratchet("setup", "--yes", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["costs_at_most"].startswith("stops when 1,000 tokens are used")
    settings = written(home)
    assert settings["llm"]["default"] == "gpt-5.4-mini"
    assert settings["budgets"]["run"] == {"tokens": 1000}
    assert settings["engines"] == {"default": "codex", "codex": {"model": "gpt-5.5"}}
    for line in text.splitlines():
        assert line in (home / "ratchet.toml").read_text().splitlines()


@pytest.mark.parametrize("by", ["file", "variable"])
def test_the_model_that_is_set_already_is_the_one_that_is_shown(
    ratchet: Ratchet, home: Path, alone: pytest.MonkeyPatch, model_server: ModelServer, by: str
) -> None:
    model_server.script("setup-mystery", [])
    alone.setenv("OPENAI_API_KEY", "the-only-key")
    alone.setenv("RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL", model_server.openai_url("setup-mystery"))
    if by == "file":
        home.mkdir()
        (home / "ratchet.toml").write_text('engines.codex.model = "scripted"\nllm.default = "mystery-1"\n')
    else:
        alone.setenv("RATCHET_ENGINES__CODEX__MODEL", "scripted")
        alone.setenv("RATCHET_LLM__DEFAULT", "mystery-1")
    done = ratchet("setup", "--yes", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["author"]["model"] == "scripted"
    assert found["reviewer"]["model"] == "openai/gpt-5.5"
    assert found["price"] is None
    assert found["costs_at_most"].startswith("stops when 2,000,000 tokens are used")
    told = ratchet("setup", "--yes").out
    assert "codex with the key in OPENAI_API_KEY (scripted)" in told
    assert 'not known: add [llm.prices."scripted"]' in told
    assert "mystery-1, which cannot be asked: " in told


def test_a_budget_of_money_that_cannot_be_kept_is_told(
    ratchet: Ratchet, home: Path, alone: pytest.MonkeyPatch, model_server: ModelServer
) -> None:
    model_server.script("setup-money", [])
    alone.setenv("OPENAI_API_KEY", "the-only-key")
    alone.setenv("RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL", model_server.openai_url("setup-money"))
    alone.setenv("RATCHET_ENGINES__CODEX__MODEL", "scripted")
    alone.setenv("RATCHET_BUDGETS__RUN__COST_USD", "3")
    told = ratchet("setup", "--yes").out
    assert "nothing runs: the price of scripted is not known, so a budget of 3 dollars cannot be kept" in told


def test_an_engine_that_is_set_and_cannot_work_is_named(
    ratchet: Ratchet, home: Path, alone: pytest.MonkeyPatch
) -> None:
    alone.setenv("OPENAI_API_KEY", "the-only-key")
    alone.setenv("RATCHET_ENGINES__DEFAULT", "claude")
    done = ratchet("setup", "--yes")
    assert done.code == 1
    assert "engines.default is 'claude'" in done.err
    assert "hint: set engines.default to codex" in done.err


def test_an_endpoint_that_shows_nothing_of_the_key_is_told_with_what_its_address_may_lack(
    ratchet: Ratchet, alone: pytest.MonkeyPatch, model_server: ModelServer
) -> None:
    model_server.script("setup-v1", [], key="the-only-key")
    url = model_server.openai_url("setup-v1")
    alone.setenv("OPENAI_API_KEY", "the-only-key")
    alone.setenv("RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL", url.removesuffix("/v1"))
    done = ratchet("setup", "--yes")
    assert done.code == 0, done.err
    assert "could not be verified: HTTP 404" in done.err
    assert f"set RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL to {url}" in done.err.replace("\n", " ")
    assert "not verified" in done.out


def test_a_login_is_used_in_place_and_its_agent_answers_plain_questions(
    ratchet: Ratchet, home: Path, alone: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    access = token(3600)
    codex_file(tmp_path, access)
    done = ratchet("setup", "--yes")
    assert done.code == 0, done.err
    assert "nothing beyond the subscription" in done.out
    assert "not verified" in done.out
    settings = written(home)
    assert settings["engines"] == {"default": "codex"}
    assert settings["workflows"] == {"overseer": "codex", "llm": "codex"}
    assert access not in (home / "ratchet.toml").read_text()


def test_ollama_is_found_by_its_own_variable(
    ratchet: Ratchet, home: Path, alone: pytest.MonkeyPatch, model_server: ModelServer
) -> None:
    model_server.script("setup-ollama", [])
    alone.setenv("OLLAMA_HOST", model_server.openai_url("setup-ollama").removesuffix("/v1"))
    done = ratchet("setup", "--yes", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["default_model"], found["author"]["engine"]) == ("ollama/scripted", "codex")
    assert found["reviewer"]["independence"] == "same model"
    assert found["costs_at_most"].startswith("nothing")
    assert (found["price"]["input"], found["price"]["output"]) == (0, 0)
    assert written(home)["llm"]["default"] == "ollama/scripted"


def test_with_nothing_to_work_with_it_says_what_to_do(
    ratchet: Ratchet, home: Path, alone: pytest.MonkeyPatch
) -> None:
    done = ratchet("setup", "--yes")
    assert done.code == 3
    assert "export OPENAI_API_KEY" in done.err
    assert "OLLAMA_HOST is set, but no Ollama with a model answers at http://127.0.0.1:9" in done.err
    alone.delenv("OLLAMA_HOST")
    alone.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    again = ratchet("setup", "--yes").err
    assert "OLLAMA_HOST" not in again
    assert "OPENAI_BASE_URL is set and is not used" in again
    assert not (home / "ratchet.toml").exists()


def test_a_key_that_is_refused_is_told_and_nothing_is_written(
    ratchet: Ratchet, home: Path, alone: pytest.MonkeyPatch
) -> None:
    alone.setenv("OPENAI_API_KEY", "the-only-key")
    alone.setenv("RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL", "http://127.0.0.1:9/v1")
    done = ratchet("setup", "--yes")
    assert done.code == 1
    assert done.err.count("http://127.0.0.1:9/v1 cannot be reached") == 1
    assert "hint: check RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL, the network" in done.err
    assert "export OPENAI_API_KEY" not in done.err
    assert not home.exists()


def test_of_two_keys_the_one_that_does_not_work_is_named(
    ratchet: Ratchet, alone: pytest.MonkeyPatch, model_server: ModelServer
) -> None:
    model_server.script("two-keys", [], key="the-only-key", models=["gpt-5.5", "gpt-5.4-mini"])
    alone.setenv("OPENAI_API_KEY", "the-only-key")
    alone.setenv("RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL", model_server.openai_url("two-keys"))
    alone.setenv("ANTHROPIC_API_KEY", "another")
    alone.setenv("RATCHET_LLM__ENDPOINTS__ANTHROPIC__BASE_URL", "http://127.0.0.1:9")
    done = ratchet("setup", "--yes")
    assert done.code == 0, done.err
    assert "not used: claude: " in done.err
    assert "http://127.0.0.1:9" in done.err


@pytest.mark.soak
def test_a_command_that_needs_a_model_offers_setup_on_a_terminal(
    home: Path, alone: pytest.MonkeyPatch, model_server: ModelServer, database_url: str
) -> None:
    """The key is there and nobody chose: of two, no one is the only one."""
    for provider in ("openai", "openrouter"):
        model_server.script("setup-offer", [])
        alone.setenv(f"{provider.upper()}_API_KEY", f"a-key-of-{provider}")
        variable = f"RATCHET_LLM__ENDPOINTS__{provider.upper()}__BASE_URL"
        alone.setenv(variable, model_server.openai_url("setup-offer"))
    here = ["--home", str(home), "--database-url", database_url]
    own, other = pty.openpty()
    os.set_blocking(own, False)
    command = [sys.executable, "-m", "ratchet.cli", "workflow", "new", "Summarise a text.", *here]
    said = ""

    def shows(text: str) -> bool:
        nonlocal said
        with contextlib.suppress(BlockingIOError, OSError):
            said += os.read(own, 65536).decode(errors="replace")
        return text in said

    with subprocess.Popen(command, stdin=other, stdout=subprocess.DEVNULL, stderr=other) as started:
        try:
            eventually(lambda: shows("and then this command again?"))
            os.write(own, b"\n")
            eventually(lambda: shows("Who writes code"))
            os.write(own, b"1\n")
            eventually(lambda: (home / "ratchet.toml").exists() and "llm" in written(home))
        finally:
            started.kill()
            os.close(other)
            os.close(own)
    assert written(home)["llm"]["default"] == "gpt-5.5"


def test_a_workflow_without_any_model_is_refused_before_a_run_is_made(
    ratchet: Ratchet, alone: pytest.MonkeyPatch
) -> None:
    assert ratchet("init").code == 0
    done = ratchet("workflow", "new", "Summarise a text.")
    assert done.code == 3
    assert "run `ratchet setup`" in done.err
    assert ratchet("runs", "list", "--json").json == []
