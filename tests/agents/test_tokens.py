"""A token names one version of one agent, and nobody but the process that gave it out can make one."""

from __future__ import annotations

import asyncio
import re

import pytest

from ratchet.agents import access
from ratchet.agents.addresses import AgentTokens, Bearer
from ratchet.agents.contract import Role
from ratchet.agents.gateway import AgentRoute
from ratchet.kernel import Misuse, RatchetError
from ratchet.ledger import Ledger
from ratchet.ledger.agent_access import add_key, list_keys, remove_key
from ratchet.ledger.agents import create_agent, delete_agent, get_agent

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


def _key(ledger: Ledger, agent: str, *scopes: str) -> str:
    """A key as `ratchet agent key add` makes it."""
    with ledger.write() as tx:
        made = add_key(tx, get_agent(tx, agent), "ci", scopes=scopes, hash=access._hash("s" * 43), by="x")
    return f"rk_{made.id}_{'s' * 43}"


def _opens(ledger: Ledger, token: str | None, role: Role, *, guarded: bool = False) -> int:
    """200, or the status with which the agent `greeter` refuses who brings the token."""
    shown = None if token is None else f"Bearer {token}".encode()
    try:
        route = AgentRoute("greeter", role, None)
        asyncio.run(access.KeyKeeper(ledger, "of the home").check(route, shown, guarded=guarded))
    except RatchetError as error:
        return error.http_status
    return 200


@pytest.fixture
def agents(ledger: Ledger) -> Ledger:
    with ledger.write() as tx:
        for name in ("greeter", "other"):
            create_agent(tx, name, "says hello")
    return ledger


def test_feedback_wants_a_key_or_the_token_of_the_home_and_calls_only_where_others_reach(
    agents: Ledger,
) -> None:
    assert _opens(agents, None, Role.RUNNER) == 200
    for role, guarded in ((Role.TUNER, False), (Role.TUNER, True), (Role.RUNNER, True)):
        assert _opens(agents, None, role, guarded=guarded) == 401
        assert _opens(agents, "of the hom", role, guarded=guarded) == 401
        assert _opens(agents, "of the home", role, guarded=guarded) == 200


@pytest.mark.parametrize(
    ("scope", "runner", "tuner"), [("call", 200, 403), ("feedback", 403, 200), ("admin", 200, 200)]
)
def test_a_key_opens_what_its_scope_says(agents: Ledger, scope: str, runner: int, tuner: int) -> None:
    key = _key(agents, "greeter", scope)

    assert _opens(agents, key, Role.RUNNER, guarded=True) == runner
    assert _opens(agents, key, Role.TUNER) == tuner


def test_a_key_of_another_agent_a_wrong_one_and_a_revoked_one_open_nothing(agents: Ledger) -> None:
    theirs, ours = _key(agents, "other", "admin"), _key(agents, "greeter", "admin")

    assert _opens(agents, theirs, Role.TUNER) == 401
    assert _opens(agents, f"{ours[:-1]}t", Role.TUNER) == 401
    assert _opens(agents, f"rk_999_{'s' * 43}", Role.TUNER) == 401
    assert _opens(agents, ours, Role.TUNER) == 200
    with agents.write() as tx:
        remove_key(tx, get_agent(tx, "greeter"), "ci")
    assert _opens(agents, ours, Role.TUNER) == 401


def test_keys_go_with_their_agent_and_none_is_kept_in_the_clear(agents: Ledger) -> None:
    key = _key(agents, "other", "admin")
    with agents.write() as tx:
        other = get_agent(tx, "other")
        assert key.rpartition("_")[2] not in repr(list_keys(tx, other.id))
        delete_agent(tx, other)
    assert access.holder_of(agents, key) is None
