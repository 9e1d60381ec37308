"""Which model is asked."""

from __future__ import annotations

import pytest

from ratchet.config.llm_settings import Endpoint, Llm
from ratchet.engines import Request
from ratchet.engines.llm.choice import candidates
from ratchet.kernel import ConfigError, Misuse
from ratchet.modelserver import say
from tests.config.conftest import Place as ConfigPlace
from tests.config.conftest import place as config_place
from tests.engines.contract import propose
from tests.engines.llm.subject import LlmSubject

__all__ = ["config_place"]

SETTINGS = Llm(
    endpoints={"local": Endpoint(base_url="http://127.0.0.1:1/v1")},
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
    ],
)
def test_a_role_a_tier_or_a_model_is_found(choice: str, names: list[str]) -> None:
    assert [each.name for each in candidates(choice, SETTINGS)] == names


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("code", "the role 'code' has no tier 'default'"),
        ("code.slow", "the role 'code' has no tier 'slow'"),
        ("design", "there is no role 'design'; there are: chat, code, qa"),
        ("nowhere/model", "there is no endpoint 'nowhere'"),
        ("local/", "names no model"),
        (None, "llm.default is not set"),
    ],
)
def test_what_is_not_there_is_refused_and_what_there_is_named(choice: str | None, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        candidates(choice, SETTINGS)


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
    settings = Llm(endpoints={"openai": Endpoint(base_url="http://proxy/v1", key_variable="MINE")})
    [found] = candidates("openai/m", settings)
    assert (found.url, found.key_variable) == ("http://proxy/v1", "MINE")


def test_a_role_can_be_set_by_a_variable(config_place: ConfigPlace) -> None:
    env = {"RATCHET_LLM__ROLES__CODE__FAST": "local/a spare/b"}
    assert config_place.load(env=env).settings.llm.roles == {"code": {"fast": ("local/a", "spare/b")}}


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[llm.roles.code]\nfast = 'qwen3'", "code.fast must name models as endpoint/model, not 'qwen3'"),
        ("[llm.roles.code]\nfast = []", "code.fast must name models"),
        ("[llm.roles.'a.b']\nfast = 'x/y'", "the name 'a.b' must be"),
        ("[llm.endpoints.local]\nbase_url = 'host:80'", "must start with http:// or https://"),
        ("[llm.endpoints.local]\nbase_url = 'http://u:hunter2@h'", "must not carry a password"),
        ("[llm.prices.m]\ninput = -1\noutput = 1", "greater than or equal to 0"),
    ],
)
def test_a_mistake_in_the_settings_is_told(config_place: ConfigPlace, toml: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        config_place.load(toml)
    assert "hunter2" not in str(caught.value)
