"""Which model is asked."""

from __future__ import annotations

import pytest

from ratchet.config.engine_settings import EndpointSettings, Llm
from ratchet.engines import Request
from ratchet.engines.llm.choice import candidates
from ratchet.kernel import ConfigError, Missing, Misuse
from ratchet.modelserver import say
from tests.config.conftest import Place as ConfigPlace
from tests.config.conftest import place as config_place
from tests.engines.contract import propose
from tests.engines.llm.subject import LlmSubject

__all__ = ["config_place"]

SETTINGS = Llm(
    endpoints={"local": EndpointSettings(base_url="http://127.0.0.1:1/v1")},
    roles={
        "code": {"fast": ("local/small",), "strong": ("anthropic/claude-sonnet-5", "local/big")},
        "qa": {"only": ("local/qa",)},
        "chat": {"default": ("local/chat",), "other": ("local/other",)},
    },
)


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("code.fast", ["local/small"]),
        ("code.strong", ["anthropic/claude-sonnet-5", "local/big"]),
        ("qa", ["local/qa"]),
        ("chat", ["local/chat"]),
        ("local/any", ["local/any"]),
        ("openai/org/model.v1", ["openai/org/model.v1"]),
        ("gpt-5.5", ["openai/gpt-5.5"]),
        ("GPT-5.5", ["openai/gpt-5.5"]),
        ("openai/GPT-5.5", ["openai/gpt-5.5"]),
        ("local/GPT-5.5", ["local/GPT-5.5"]),
        ("claude-sonnet-5", ["anthropic/claude-sonnet-5"]),
        ("Claude-Sonnet-5", ["anthropic/claude-sonnet-5"]),
        ("qwen3:8b", ["ollama/qwen3:8b"]),
        ("openrouter/openai/gpt-5.5", ["openrouter/openai/gpt-5.5"]),
        ("http://127.0.0.1:8000/v1#big", ["http://127.0.0.1:8000/v1#big"]),
        ("https://host/v1/#org/big", ["https://host/v1#org/big"]),
    ],
)
def test_a_role_a_tier_or_a_model_is_found(choice: str, names: list[str]) -> None:
    assert [each.name for each in candidates(choice, SETTINGS)] == names


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("code", "the role 'code' has no tier 'default'"),
        ("code.slow", "the role 'code' has no tier 'slow'"),
        ("cod", "'cod' is neither a role nor a model whose provider is known; the nearest is 'code'"),
        ("sonnet-5", "the nearest is 'claude-sonnet-5'"),
        ("opnai/model", "there is no endpoint 'opnai' for the model 'opnai/model'; the nearest is 'openai'"),
        ("local/", "names no model"),
        ("http://host/v1", "names no model"),
        ("http://me:hunter2@host/v1#m", "must not contain a password"),
    ],
)
def test_what_is_not_there_is_refused_and_the_nearest_named(choice: str, message: str) -> None:
    with pytest.raises(Misuse, match=message) as caught:
        candidates(choice, SETTINGS)
    assert caught.value.hint
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"OPENAI_API_KEY": "k"}, "openai/gpt-5.5"),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic/claude-sonnet-5"),
        ({"OPENROUTER_API_KEY": "k"}, "openrouter/openai/gpt-5.5"),
    ],
)
def test_the_only_key_decides_which_model_is_the_default(environment: dict[str, str], name: str) -> None:
    [found] = candidates(None, SETTINGS, environment)
    assert found.name == name
    assert candidates(None, Llm(default="ollama/mine"), environment)[0].name == "ollama/mine"


@pytest.mark.parametrize("environment", [{}, {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}])
def test_without_a_default_and_with_no_key_or_several_setup_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(Missing, match=r"llm\.default is not set") as caught:
        candidates(None, SETTINGS, environment)
    assert "ratchet setup" in str(caught.value.hint)


def test_a_provider_keeps_its_protocol_and_its_key_when_only_its_address_changes() -> None:
    names = ("openai", "anthropic", "openrouter", "ollama")
    moved = {name: EndpointSettings(base_url=f"http://{name}.here/v1") for name in names}
    found = [candidates(f"{name}/m", Llm(endpoints=moved))[0] for name in names]
    assert [each.endpoint.kind for each in found] == ["openai", "anthropic", "openai", "ollama"]
    assert [each.key_variable for each in found] == [
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "OPENROUTER_API_KEY",
        None,
    ]
    # An address of your own may need no key, so one that is not set is no mistake.
    assert not any(each.needs_key for each in found)


def test_a_model_at_an_address_gets_no_key() -> None:
    [found] = candidates("https://host/v1#m", SETTINGS, {"OPENAI_API_KEY": "k"})
    assert (found.url, found.key_in({"OPENAI_API_KEY": "k"})) == ("https://host/v1", "")


def test_without_a_choice_the_default_is_taken(llm: LlmSubject) -> None:
    engine = llm.open(say("hello"), llm='default = "local/chosen"', option="")
    session = propose(engine, Request("hi"))
    assert (session.model, llm.script.requests[0].body["model"]) == ("local/chosen", "chosen")


def test_a_request_may_name_another_model(llm: LlmSubject) -> None:
    session = propose(llm.open(say("hello")), Request("hi", model="local/other"))
    assert (session.model, llm.script.requests[0].body["model"]) == ("local/other", "other")


def test_the_makers_own_endpoints_need_their_keys_and_a_local_one_does_not() -> None:
    found = [candidates(name, SETTINGS)[0] for name in ("openai/m", "anthropic/m", "ollama/m", "local/m")]
    assert [each.key_variable for each in found] == ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", None, None]
    assert found[2].url == "http://127.0.0.1:11434/v1"


@pytest.mark.parametrize(
    ("kind", "given", "used"),
    [
        ("openai", "http://h/api/", "http://h/api"),
        ("ollama", "http://h:11434", "http://h:11434/v1"),
        ("ollama", "http://h:11434/v1", "http://h:11434/v1"),
        ("anthropic", "http://h/v1", "http://h"),
        ("anthropic", "http://h", "http://h"),
    ],
)
def test_an_address_is_understood_with_and_without_its_version(kind: str, given: str, used: str) -> None:
    settings = Llm.model_validate({"endpoints": {"local": {"kind": kind, "base_url": given}}})
    assert candidates("local/m", settings)[0].url == used


def test_an_endpoint_may_take_the_name_of_a_ready_one() -> None:
    settings = Llm(endpoints={"openai": EndpointSettings(base_url="http://proxy/v1", key_variable="MINE")})
    [found] = candidates("openai/m", settings)
    assert (found.url, found.key_variable) == ("http://proxy/v1", "MINE")


def test_a_role_can_be_set_by_a_variable(config_place: ConfigPlace) -> None:
    env = {"RATCHET_LLM__ROLES__CODE__FAST": "local/a spare/b"}
    assert config_place.load(env=env).settings.llm.roles == {"code": {"fast": ("local/a", "spare/b")}}


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[llm.roles.code]\nfast = []", "code.fast must name models"),
        ("[llm.roles.'a.b']\nfast = 'x/y'", "the name 'a.b' must be"),
        ("[llm.endpoints.local]\nbase_url = 'host:80'", "must start with http:// or https://"),
        ("[llm.endpoints.local]\nbase_url = 'http://u:hunter2@h'", "must not contain a password"),
        ("[llm.prices.m]\ninput = -1\noutput = 1", "greater than or equal to 0"),
    ],
)
def test_a_mistake_in_the_settings_is_told(config_place: ConfigPlace, toml: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        config_place.load(toml)
    assert "hunter2" not in str(caught.value)
