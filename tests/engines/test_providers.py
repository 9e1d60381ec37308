"""The providers that are known without being described."""

from __future__ import annotations

import asyncio

import pytest

from ratchet.engines import Failure, Request, SessionFailed
from ratchet.engines.claude.environment import ClaudeConversations, find_terms
from ratchet.engines.codex.configuration import find_access
from ratchet.engines.llm.choice import candidates
from ratchet.engines.providers import default_engine, maker_of, ollama_url, only_provider
from ratchet.engines.registry import open_engine
from ratchet.engines.session_home import KeptSessions
from tests.engines.conftest import Place


@pytest.mark.parametrize(
    ("model", "maker"),
    [
        ("gpt-5.5", "openai"),
        ("o3", "openai"),
        ("GPT-5.5", "openai"),
        ("Claude-Sonnet-5", "anthropic"),
        ("claude-sonnet-5", "anthropic"),
        ("gpt-oss", "ollama"),
        ("qwen3:8b", "ollama"),
        ("llama3", "ollama"),
        ("sonnet", None),
    ],
)
def test_the_maker_of_a_plain_name(model: str, maker: str | None) -> None:
    found = maker_of(model)
    assert (found and found.name) == maker


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("box", "http://box:11434"),
        ("box:1234", "http://box:1234"),
        (":1234", "http://127.0.0.1:1234"),
        ("https://box/", "https://box:443"),
        ("http://box:8080/models", "http://box:8080/models"),
    ],
)
def test_ollama_is_where_its_own_variable_says(value: str, url: str) -> None:
    assert ollama_url({"OLLAMA_HOST": value}) == url


@pytest.mark.parametrize(
    ("environment", "engine", "only"),
    [
        ({}, "codex", None),
        ({"OPENAI_API_KEY": "k"}, "codex", "openai"),
        ({"ANTHROPIC_API_KEY": "k"}, "claude", "anthropic"),
        ({"OPENROUTER_API_KEY": "k"}, "codex", "openrouter"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "codex", None),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": " "}, "claude", "anthropic"),
    ],
)
def test_the_only_key_decides_who_works(
    place: Place, environment: dict[str, str], engine: str, only: str | None
) -> None:
    found = only_provider(environment)
    assert (found and found.name) == only
    assert default_engine(place.surroundings().settings, environment) == engine
    configured = place.surroundings('engines.default = "aider"').settings
    assert default_engine(configured, environment) == "aider"


@pytest.mark.parametrize("around", ["\n", "\r\n", "\t ", "\u00a0"])
def test_a_key_is_sent_without_what_is_around_it(place: Place, around: str) -> None:
    given = {"OPENAI_API_KEY": f"sk-secret{around}", "ANTHROPIC_API_KEY": f"{around}sk-secret"}
    surroundings = place.surroundings("", given)
    kept = ClaudeConversations(KeptSessions(surroundings.home, 1))
    codex = find_access("gpt-5.5", surroundings.settings.engines.codex, surroundings)
    assert codex.environment["OPENAI_API_KEY"] == "sk-secret"
    assert find_terms("claude-sonnet-5", surroundings, kept).key == "sk-secret"
    [plain] = candidates("gpt-5.5", surroundings.settings.llm, given)
    assert plain.key_in(given) == "sk-secret"


@pytest.mark.parametrize("key", ["sk-sec\nret", "sk-sécret", "sk-sec\x00ret"])
def test_a_key_that_no_header_can_hold_is_refused_by_its_variable_and_never_shown(
    place: Place, key: str
) -> None:
    surroundings = place.surroundings("", {"OPENAI_API_KEY": key})
    for name in ("codex", "llm:gpt-5.5"):
        found = asyncio.run(open_engine(name, surroundings).check())
        assert not found.ready
        assert found.failure is Failure.MISSING
        assert "the key in OPENAI_API_KEY has a" in found.detail
        assert "OPENAI_API_KEY" in (found.fix or "")
        assert "sk-" not in repr(found)
    with pytest.raises(SessionFailed, match="the key in OPENAI_API_KEY has a") as failed:
        asyncio.run(open_engine("llm:gpt-5.5", surroundings).propose(Request("Say hello.")))
    assert failed.value.failure is Failure.MISSING
    assert "sk-" not in repr(failed.value)
