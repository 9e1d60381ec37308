"""A token names one version of one agent, and nobody but the process that gave it out can make one."""

from __future__ import annotations

import re

import pytest

from ratchet.agents.addresses import AgentTokens, Bearer
from ratchet.kernel import Misuse

COMMIT = "3f9a61c27be84d05" * 2 + "12345678"


def test_a_token_tells_whose_it_is() -> None:
    tokens = AgentTokens()
    assert tokens.read(tokens.mint("greeter", COMMIT)) == Bearer("greeter", COMMIT)


def test_the_longest_token_is_short_and_fits_into_a_header() -> None:
    tokens = AgentTokens()
    token = tokens.mint("a" * 64, "b" * 64)
    assert re.fullmatch(r"[A-Za-z0-9._~-]{1,200}", token)
    assert tokens.read(token) == Bearer("a" * 64, "b" * 64)


def test_a_token_of_another_process_is_worth_nothing() -> None:
    assert AgentTokens().read(AgentTokens().mint("greeter", COMMIT)) is None


@pytest.mark.parametrize("agent", ["other", "greeter2", "greete", "greeter~"])
def test_a_token_cannot_be_made_over_to_another_agent(agent: str) -> None:
    tokens = AgentTokens()
    assert tokens.read(tokens.mint("greeter", COMMIT).replace("greeter", agent, 1)) is None


def test_a_token_with_any_character_changed_is_worth_nothing() -> None:
    tokens = AgentTokens()
    token = tokens.mint("greeter", COMMIT)
    changed = [f"{token[:i]}{'A' if token[i] != 'A' else 'B'}{token[i + 1 :]}" for i in range(len(token))]
    assert [tokens.read(each) for each in changed] == [None] * len(token)


@pytest.mark.parametrize(
    "token",
    ["", "~", "~~", "greeter", f"greeter~{COMMIT}~", "é~a~b", "\udc80~a~b", "~" * 10_000, "a" * 1_000_000],
)
def test_rubbish_is_no_token(token: str) -> None:
    assert AgentTokens().read(token) is None


@pytest.mark.parametrize(
    ("agent", "commit"), [("Greeter", COMMIT), ("a~b", COMMIT), ("greeter", "HEAD"), ("greeter", "")]
)
def test_what_is_no_agent_or_no_commit_gets_no_token(agent: str, commit: str) -> None:
    with pytest.raises(Misuse):
        AgentTokens().mint(agent, commit)
