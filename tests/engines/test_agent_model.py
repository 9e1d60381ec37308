"""Which model an agent program asks, by the names that people type."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ratchet.engines import Request
from ratchet.engines.registry import agent_model
from ratchet.kernel import Misuse
from ratchet.modelserver import ModelServer, say
from tests.engines.conftest import Place
from tests.engines.contract import propose

OPENAI = {"OPENAI_API_KEY": "key-of-openai"}


@pytest.mark.parametrize(
    ("agent", "named", "environment", "found"),
    [
        ("codex", "gpt-5.5", OPENAI, ("gpt-5.5", None, "OPENAI_API_KEY")),
        ("codex", " gpt-5.5\n", OPENAI, ("gpt-5.5", None, "OPENAI_API_KEY")),
        ("codex", "GPT-5.5", OPENAI, ("gpt-5.5", None, "OPENAI_API_KEY")),
        ("codex", "openai/GPT-5.5", OPENAI, ("gpt-5.5", None, "OPENAI_API_KEY")),
        ("codex", "openai/gpt-5.5", OPENAI, ("gpt-5.5", None, "OPENAI_API_KEY")),
        ("codex", "ollama/qwen3", {}, ("qwen3", "http://127.0.0.1:11434/v1", "")),
        ("codex", "qwen3:8b", {"OLLAMA_HOST": "box"}, ("qwen3:8b", "http://box:11434/v1", "")),
        ("codex", "openrouter/a/b", {}, ("a/b", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY")),
        ("codex", "http://box:8000/v1#big", OPENAI, ("big", "http://box:8000/v1", "")),
        ("codex", None, OPENAI, ("gpt-5.5", None, "OPENAI_API_KEY")),
        (
            "codex",
            None,
            {"OPENROUTER_API_KEY": "k"},
            ("openai/gpt-5.5", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ),
        ("codex", None, {}, (None, None, "OPENAI_API_KEY")),
        ("claude", "claude-opus-5", {}, ("claude-opus-5", None, "ANTHROPIC_API_KEY")),
        ("claude", "anthropic/claude-opus-5", {}, ("claude-opus-5", None, "ANTHROPIC_API_KEY")),
        ("claude", "Claude-Opus-5", {}, ("claude-opus-5", None, "ANTHROPIC_API_KEY")),
        ("claude", "opus", {}, ("opus", None, "ANTHROPIC_API_KEY")),
        ("claude", "http://box#big", {}, ("big", "http://box", "")),
        ("claude", None, {"ANTHROPIC_API_KEY": "k"}, ("claude-sonnet-5", None, "ANTHROPIC_API_KEY")),
    ],
)
def test_a_name_says_the_model_its_address_and_its_key(
    place: Place,
    agent: str,
    named: str | None,
    environment: dict[str, str],
    found: tuple[str | None, str | None, str],
) -> None:
    around = place.surroundings("", environment)
    settings = getattr(around.settings.engines, agent)
    chosen = agent_model(named, agent, settings, around)
    assert (chosen.model, chosen.base_url, chosen.key_variable) == found


@pytest.mark.parametrize(
    ("agent", "named", "hint"),
    [
        ("codex", "claude-sonnet-5", "use the engine claude:claude-sonnet-5"),
        ("claude", "gpt-5.5", "use the engine codex:gpt-5.5"),
    ],
)
def test_a_model_of_another_protocol_is_refused_and_who_can_ask_it_named(
    place: Place, agent: str, named: str, hint: str
) -> None:
    with pytest.raises(Misuse, match="speaks another protocol") as caught:
        place.open(f"{agent}:{named}", "", OPENAI)
    assert caught.value.hint == hint


def test_an_endpoint_of_the_agents_own_table_is_told_the_name_as_it_is(place: Place) -> None:
    around = place.surroundings('engines.codex.base_url = "http://proxy/v1"', OPENAI)
    chosen = agent_model("anthropic/claude-opus-5", "codex", around.settings.engines.codex, around)
    assert (chosen.model, chosen.base_url) == ("anthropic/claude-opus-5", "http://proxy/v1")


@pytest.mark.parametrize("provider", ["openai", "openrouter"])
def test_one_key_and_nothing_else_is_enough_for_codex(
    place: Place, model_server: ModelServer, workspace: Path, provider: str
) -> None:
    script = model_server.script(f"only-{provider}", [say("done")])
    toml = f'[llm.endpoints.{provider}]\nbase_url = "{model_server.openai_url(f"only-{provider}")}"\n'
    engine = place.open("", toml, {f"{provider.upper()}_API_KEY": "the-only-key"})
    session = propose(engine, Request("Work.", workspace))
    assert (session.engine, session.text) == ("codex", "done")
    assert script.requests[0].body["model"] == {"openai": "gpt-5.5", "openrouter": "openai/gpt-5.5"}[provider]
    assert script.requests[0].headers["authorization"] == "Bearer the-only-key"


@pytest.mark.soak
def test_one_key_and_nothing_else_is_enough_for_claude(
    place: Place, model_server: ModelServer, workspace: Path
) -> None:
    script = model_server.script("only-anthropic", [say("done")])
    toml = f'[llm.endpoints.anthropic]\nbase_url = "{model_server.anthropic_url("only-anthropic")}"\n'
    session = propose(
        place.open("", toml, {"ANTHROPIC_API_KEY": "the-only-key"}), Request("Work.", workspace)
    )
    assert (session.engine, session.text) == ("claude", "done")
    assert script.requests[0].body["model"] == "claude-sonnet-5"
    assert script.requests[0].headers["x-api-key"] == "the-only-key"


AWAY = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("engine", "toml", "environment", "setting"),
    [
        ("codex", f'engines.codex.base_url = "{AWAY}"', {}, "engines.codex.base_url"),
        ("codex", f'llm.endpoints.openai.base_url = "{AWAY}"', OPENAI, "llm.endpoints.openai.base_url"),
        (
            "codex",
            f'llm.endpoints.openai.base_url = "{AWAY}"',
            {"RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL": AWAY},
            "RATCHET_LLM__ENDPOINTS__OPENAI__BASE_URL",
        ),
        ("codex:ollama/qwen3", "", {"OLLAMA_HOST": "127.0.0.1:9"}, "OLLAMA_HOST"),
        (f"codex:{AWAY}#big", "", {}, f"the address of {AWAY}#big"),
        (
            "claude",
            f'llm.endpoints.anthropic.base_url = "{AWAY}"',
            {"ANTHROPIC_API_KEY": "k"},
            "llm.endpoints.anthropic.base_url",
        ),
        ("llm:mine/big", f'llm.endpoints.mine.base_url = "{AWAY}"', {}, "llm.endpoints.mine.base_url"),
        ("llm:ollama/qwen3", "", {"OLLAMA_HOST": "127.0.0.1:9"}, "OLLAMA_HOST"),
        (f"llm:{AWAY}#big", "", {}, f"the address of {AWAY}#big"),
    ],
)
def test_an_endpoint_that_is_away_is_told_with_what_set_its_address(
    place: Place, engine: str, toml: str, environment: dict[str, str], setting: str
) -> None:
    found = asyncio.run(place.open(engine, toml, environment).check())
    assert "cannot be reached" in found.detail
    assert found.fix == f"check {setting}, the network and the state of the endpoint"
