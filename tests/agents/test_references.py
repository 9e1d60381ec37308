"""The names by which versions are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ratchet.agents.versions import find_version
from ratchet.kernel import Conflict, Misuse, NotFound, RatchetError
from ratchet.ledger import Ledger
from ratchet.ledger.agents import AgentRow, add_version, create_agent, get_agent, move_current

COMMITS = ("abcd" + "0" * 36, "abcd" + "f" * 36, "12345678" + "9" * 32, "e" * 40)
NUMBERS = ("0.0.0", "0.1.0", "0.1.0", "1.0.0")


@pytest.fixture
def agent(ledger: Ledger) -> AgentRow:
    """An agent with four versions, of which the second is current."""
    with ledger.write() as tx:
        made = create_agent(tx, "greeter", "greets")
        for commit, number in zip(COMMITS, NUMBERS, strict=True):
            add_version(tx, made, commit, number, parent=None, summary="", tools=[], run_id=None)
        move_current(tx, made, COMMITS[1], expected=None, why="promoted")
        return get_agent(tx, "greeter")


def found(ledger: Ledger, agent: AgentRow, text: str) -> str:
    with ledger.read() as tx:
        return find_version(tx, agent, text).commit


def test_a_version_has_many_names(ledger: Ledger, agent: AgentRow) -> None:
    names = {
        COMMITS[0]: (COMMITS[0], "abcd0", "0.0.0", "v0.0.0"),
        COMMITS[1]: ("latest", "current", "ABCDF", "v0.1.0"),
        COMMITS[2]: ("1234", " 12345 ", "v0.1.0-1234", f"V0.1.0-{COMMITS[2][:12]}"),
        COMMITS[3]: ("eeee", "1.0.0", "v1.0.0"),
    }
    for commit, texts in names.items():
        assert {found(ledger, agent, text) for text in texts} == {commit}


def test_a_name_of_several_lists_them(ledger: Ledger, agent: AgentRow) -> None:
    for text, meant in (("abcd", COMMITS[:2]), ("0.1.0", COMMITS[1:3])):
        with pytest.raises(Conflict, match="2 versions of greeter") as raised:
            found(ledger, agent, text)
        assert listed(raised.value) == set(meant)


def test_a_name_of_none_lists_what_there_is(ledger: Ledger, agent: AgentRow) -> None:
    for text in ("9.9.9", "dddd", "a" * 40, "v9.9.9", "v1.0.0-1234"):
        with pytest.raises(NotFound, match=f"{text} of greeter") as raised:
            found(ledger, agent, text)
        assert listed(raised.value) == set(COMMITS)


def test_what_can_name_no_version_is_refused(ledger: Ledger, agent: AgentRow) -> None:
    for text in (
        "",
        "abc",
        "main",
        "../abcd",
        "abcd%",
        "0.1",
        "v",
        "v0.1",
        "v0.1.0-12",
        "0.1.0-1234",
        "x" * 10_000,
        "f" * 65,
    ):
        with pytest.raises(Misuse) as raised:
            found(ledger, agent, text)
        assert len(str(raised.value)) < 200


def test_an_agent_without_a_version_says_so(ledger: Ledger, agent: AgentRow) -> None:
    with pytest.raises(Conflict, match="no version yet"):
        found(ledger, replace(agent, current=None), "latest")


def listed(error: RatchetError) -> set[str]:
    return {commit for commit in COMMITS if commit[:12] in (error.hint or "")}
