"""Agents and their versions in the ledger."""

from __future__ import annotations

import threading

import pytest

from ratchet.kernel import Conflict, NotFound, StateChanged
from ratchet.ledger import EventFilter, Ledger, Transaction
from ratchet.ledger.agents import (
    AgentRow,
    AgentStatus,
    AgentVersion,
    VersionStatus,
    add_version,
    create_agent,
    current_versions,
    delete_agent,
    end_creation,
    find_version,
    get_agent,
    get_version,
    give_up_creation,
    last_good,
    line_of,
    list_agents,
    list_versions,
    move_current,
    quarantine_version,
    release_version,
    set_pinned,
    versions_numbered,
    versions_starting,
)
from ratchet.ledger.events import since
from ratchet.ledger.runs import create_run

A, B, C, D = (letter * 40 for letter in "abcd")


def made(ledger: Ledger, *commits: str, name: str = "greeter") -> AgentRow:
    """An agent whose versions were current one after the other."""
    with ledger.write() as tx:
        agent = create_agent(tx, name, "greets people")
        end_creation(tx, agent.id, run_id=create_run(tx, "agent", name))
    for commit in commits:
        with ledger.write() as tx:
            agent = get_agent(tx, name)
            added(tx, agent, commit, parent=agent.current)
            move_current(tx, agent, commit, expected=agent.current, why="promoted")
    return known(ledger, name)


def added(
    tx: Transaction, agent: AgentRow, commit: str, *, version: str = "0.1.0", **rest: str | None
) -> AgentVersion:
    parent = rest.get("parent")
    return add_version(tx, agent, commit, version, parent=parent, summary="", tools=[], run_id=None)


def moved(ledger: Ledger, to: str, why: str) -> AgentRow:
    with ledger.write() as tx:
        agent = get_agent(tx, "greeter")
        move_current(tx, agent, to, expected=agent.current, why=why)
    return known(ledger)


def known(ledger: Ledger, name: str = "greeter") -> AgentRow:
    with ledger.read() as tx:
        return get_agent(tx, name)


def before(ledger: Ledger) -> str | None:
    """The version that would be gone back to."""
    with ledger.read() as tx:
        agent = get_agent(tx, "greeter")
        found = last_good(tx, agent.id, other_than=agent.current)
    return None if found is None else found.commit


def types(ledger: Ledger) -> list[str]:
    with ledger.read() as tx:
        found = since(tx.connection, where=EventFilter(type="agent.*"))
    assert all(event.data["agent"] for event in found)
    return [event.type.removeprefix("agent.") for event in found]


def test_an_agent_is_made_and_becomes_ready(ledger: Ledger) -> None:
    with ledger.write() as tx:
        agent = create_agent(tx, "greeter", "greets", engine="codex", model="small", simulated=True)
        run_id = create_run(tx, "agent", "greeter")
    assert (agent.status, agent.current, agent.pinned) == (AgentStatus.CREATING, None, False)
    assert (agent.engine, agent.model, agent.simulated) == ("codex", "small", True)
    with ledger.write() as tx:
        end_creation(tx, agent.id, run_id=run_id)
    assert known(ledger).status is AgentStatus.READY
    assert types(ledger) == ["created", "ready"]


def test_a_name_is_taken_once(ledger: Ledger) -> None:
    made(ledger)
    with pytest.raises(Conflict, match="greeter"), ledger.write() as tx:
        create_agent(tx, "greeter", "another")
    with ledger.read() as tx:
        assert [agent.description for agent in list_agents(tx)] == ["greets people"]


def test_the_name_of_an_agent_that_came_to_nothing_is_free(ledger: Ledger) -> None:
    with ledger.write() as tx:
        first = create_agent(tx, "greeter", "greets")
        end_creation(tx, first.id, run_id=create_run(tx, "agent", "greeter"), reason="no engine")
    assert (known(ledger).status, known(ledger).reason) == (AgentStatus.FAILED, "no engine")
    with ledger.write() as tx:
        second = create_agent(tx, "greeter", "greets")
    assert second.id != first.id
    assert second.reason is None


def test_a_creation_ends_once(ledger: Ledger) -> None:
    agent = made(ledger)
    with ledger.write() as tx:
        run_id = create_run(tx, "agent", "greeter")
    with pytest.raises(StateChanged), ledger.write() as tx:
        end_creation(tx, agent.id, run_id=run_id, reason="too late")
    with ledger.write() as tx:
        give_up_creation(tx, "greeter", run_id=run_id, reason="too late")
    assert known(ledger).status is AgentStatus.READY


def test_what_is_still_being_made_can_be_given_up(ledger: Ledger) -> None:
    with ledger.write() as tx:
        create_agent(tx, "greeter", "greets")
        give_up_creation(tx, "greeter", run_id=create_run(tx, "agent", "greeter"), reason="cancelled")
    assert (known(ledger).status, known(ledger).reason) == (AgentStatus.FAILED, "cancelled")


def test_a_deleted_agent_is_gone_and_its_name_free(ledger: Ledger) -> None:
    first = made(ledger, A)
    with ledger.write() as tx:
        delete_agent(tx, first)
    with ledger.read() as tx:
        assert list_agents(tx) == []
        with pytest.raises(NotFound):
            get_agent(tx, "greeter")
    with pytest.raises(StateChanged), ledger.write() as tx:
        delete_agent(tx, first)
    second = made(ledger)
    with ledger.read() as tx:
        assert list_versions(tx, second.id) == []
        assert [version.commit for version in list_versions(tx, first.id)] == [A]


def test_nothing_moves_a_deleted_agent(ledger: Ledger) -> None:
    agent = made(ledger, A, B)
    with ledger.write() as tx:
        delete_agent(tx, agent)
    with pytest.raises(NotFound), ledger.write() as tx:
        move_current(tx, agent, A, expected=B, why="rolled_back")
    with pytest.raises(StateChanged), ledger.write() as tx:
        set_pinned(tx, agent, True)


def test_agents_are_listed_by_name_in_pages(ledger: Ledger) -> None:
    for name in ("b", "c", "a"):
        made(ledger, name=name)
    with ledger.read() as tx:
        assert [agent.name for agent in list_agents(tx, limit=2)] == ["a", "b"]
        assert [agent.name for agent in list_agents(tx, after="b")] == ["c"]


def test_a_version_is_recorded_once(ledger: Ledger) -> None:
    agent = made(ledger)
    tools = [{"name": "greet"}]
    with ledger.write() as tx:
        first = add_version(tx, agent, A, "0.0.0", parent=None, summary="new", tools=tools, run_id=None)
        again = add_version(tx, agent, A, "9.9.9", parent=B, summary="other", tools=[], run_id=None)
    assert again == first
    assert (first.status, first.tools, first.promoted_at) == (VersionStatus.READY, tools, None)
    assert types(ledger).count("version") == 1


def test_versions_are_found_by_commit_number_and_page(ledger: Ledger) -> None:
    agent = made(ledger)
    commits = ["ab00" + "0" * 36, "ab01" + "f" * 36, "abff" + "f" * 36, "b" * 40]
    with ledger.write() as tx:
        for commit, version in zip(commits, ("0.0.0", "0.1.0", "0.1.0", "1.0.0"), strict=True):
            added(tx, agent, commit, version=version)
    with ledger.read() as tx:
        assert {each.commit for each in versions_starting(tx, agent.id, "ab")} == set(commits[:3])
        assert [each.commit for each in versions_starting(tx, agent.id, "ab01")] == [commits[1]]
        assert [each.commit for each in versions_starting(tx, agent.id, commits[2])] == [commits[2]]
        assert versions_starting(tx, agent.id, "abc") == []
        numbered = versions_numbered(tx, agent.id, "0.1.0")
        assert [each.commit for each in numbered] == [commits[2], commits[1]]
        newest = list_versions(tx, agent.id, limit=2)
        assert [each.commit for each in newest] == [commits[3], commits[2]]
        assert [each.commit for each in list_versions(tx, agent.id, before=newest[-1].id)] == commits[1::-1]
        assert find_version(tx, agent.id, C) is None
        with pytest.raises(NotFound):
            get_version(tx, agent.id, C)


def test_versions_belong_to_their_agent(ledger: Ledger) -> None:
    made(ledger, A)
    other = made(ledger, B, name="other")
    with ledger.read() as tx:
        assert find_version(tx, other.id, A) is None
        assert current_versions(tx, list_agents(tx))[other.id].commit == B
    with pytest.raises(NotFound), ledger.write() as tx:
        move_current(tx, other, A, expected=B, why="promoted")


def test_the_line_of_a_version_leaves_variants_out(ledger: Ledger) -> None:
    agent = made(ledger, A, B)
    with ledger.write() as tx:
        added(tx, agent, C, parent=A)
    with ledger.read() as tx:
        assert line_of(tx, agent, down_to=0) == {A, B}
        assert line_of(tx, agent, down_to=get_version(tx, agent.id, B).id) == {B}


def test_the_address_moves_only_from_where_it_was_seen(ledger: Ledger) -> None:
    agent = made(ledger, A, B)
    with pytest.raises(StateChanged, match=B), ledger.write() as tx:
        move_current(tx, agent, A, expected=A, why="rolled_back")
    with pytest.raises(StateChanged), ledger.write() as tx:
        move_current(tx, agent, A, expected=None, why="promoted")
    assert known(ledger).current == B
    assert types(ledger).count("promoted") == 2


def test_a_move_says_from_where_to_where_and_why(ledger: Ledger) -> None:
    made(ledger, A, B)
    with ledger.write() as tx:
        agent = get_agent(tx, "greeter")
        move_current(tx, agent, A, expected=B, why="fell_back", reason="crashed")
    with ledger.read() as tx:
        (event,) = since(tx.connection, where=EventFilter(type="agent.fell_back"))
    assert event.data == {"agent": "greeter", "from": B, "to": A, "version": "0.1.0", "reason": "crashed"}


def test_of_two_movers_at_once_one_is_told(ledger: Ledger) -> None:
    agent = made(ledger, A, B, C)
    told: list[str] = []
    ready = threading.Barrier(2)

    def move(to: str, why: str) -> None:
        ready.wait()
        try:
            with ledger.write() as tx:
                move_current(tx, agent, to, expected=C, why=why)
            told.append("moved")
        except StateChanged:
            told.append("changed")

    threads = [threading.Thread(target=move, args=args) for args in ((A, "rolled_back"), (B, "promoted"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == ["changed", "moved"]


def test_what_was_current_before_is_found_in_the_order_of_the_moves(ledger: Ledger) -> None:
    made(ledger, A, B, C)
    assert before(ledger) == B
    moved(ledger, A, "promoted")
    assert before(ledger) == C


def test_each_rollback_goes_one_further_back(ledger: Ledger) -> None:
    made(ledger, A, B, C)
    moved(ledger, B, "rolled_back")
    assert before(ledger) == A
    moved(ledger, A, "rolled_back")
    assert before(ledger) is None


def test_a_version_after_a_rollback_goes_back_to_what_it_replaced(ledger: Ledger) -> None:
    made(ledger, A, B, C)
    agent = moved(ledger, B, "rolled_back")
    with ledger.write() as tx:
        added(tx, agent, D, parent=B)
        move_current(tx, agent, D, expected=B, why="promoted")
    assert before(ledger) == B


def test_a_rollback_over_several_versions_takes_them_all_back(ledger: Ledger) -> None:
    made(ledger, A, B, C)
    moved(ledger, A, "rolled_back")
    assert before(ledger) is None
    moved(ledger, C, "promoted")
    assert before(ledger) == A


def test_a_rollback_to_a_variant_takes_back_only_what_it_replaces(ledger: Ledger) -> None:
    agent = made(ledger, A, B)
    with ledger.write() as tx:
        added(tx, agent, C, parent=A)
    moved(ledger, C, "rolled_back")
    assert before(ledger) == A


def test_a_quarantined_version_is_neither_moved_nor_fallen_back_to(ledger: Ledger) -> None:
    agent = made(ledger, A, B, C)
    with ledger.write() as tx:
        quarantine_version(tx, agent, B, "crashed four times")
    assert before(ledger) == A
    with pytest.raises(Conflict, match="crashed four times"):
        moved(ledger, B, "promoted")
    assert known(ledger).current == C


def test_a_quarantine_is_told_once_and_keeps_its_first_reason(ledger: Ledger) -> None:
    agent = made(ledger, A)
    for reason in ("first", "second"):
        with ledger.write() as tx:
            quarantine_version(tx, agent, A, reason)
    with ledger.read() as tx:
        assert get_version(tx, agent.id, A).reason == "first"
    assert types(ledger).count("quarantined") == 1
    with pytest.raises(NotFound), ledger.write() as tx:
        quarantine_version(tx, agent, D, "it was never there")


def test_a_released_version_can_be_current_again(ledger: Ledger) -> None:
    agent = made(ledger, A, B)
    with ledger.write() as tx:
        quarantine_version(tx, agent, A, "crashed")
    for _ in range(2):
        with ledger.write() as tx:
            release_version(tx, agent, A)
    assert moved(ledger, A, "promoted").current == A
    with ledger.read() as tx:
        assert get_version(tx, agent.id, A).reason is None
    assert types(ledger).count("released") == 1


def test_a_pin_is_set_and_taken_off(ledger: Ledger) -> None:
    agent = made(ledger, A)
    for pinned in (True, False):
        with ledger.write() as tx:
            set_pinned(tx, agent, pinned)
        assert known(ledger).pinned is pinned
    assert types(ledger)[-2:] == ["pinned", "unpinned"]
