"""The providers that are known without being described."""

from __future__ import annotations

import pytest

from ratchet.engines.providers import default_engine, maker_of, ollama_url, only_provider
from tests.engines.conftest import Place


@pytest.mark.parametrize(
    ("model", "maker"),
    [
        ("gpt-5.5", "openai"),
        ("o3", "openai"),
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
