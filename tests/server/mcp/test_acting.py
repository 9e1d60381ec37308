"""What can be done over the face once it is allowed, by whom, and what strange requests come to."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client

from ratchet.ledger import EventFilter
from ratchet.ledger.events import latest
from ratchet.ledger.questions import request_approval
from ratchet.runtime.processes import leave, register
from ratchet.server.mcp.face import READING
from tests.agents.made_up import NAME
from tests.server.mcp.conftest import PROJECT_TOKEN, World, text_of, told


def actors(world: World, run_id: int) -> set[str]:
    with world.ledger.read() as tx:
        return {event.actor for event in latest(tx.connection, where=EventFilter(run_id=run_id))}


@pytest.mark.soak
def test_a_protocol_is_made_started_paused_and_cancelled_in_the_name_of_mcp(world: World) -> None:
    async def act(client: Client) -> tuple[int, list[dict[str, Any]]]:
        wanted = {"project_id": world.open["project"], "protocol_name": "0002-mcp", "description": "a change"}
        made = told(await client.call_tool("create_protocol", wanted))
        named = {"protocol_id": made["id"]}
        actions = (
            "start_protocol",
            "pause_protocol",
            "resume_protocol",
            "cancel_protocol",
            "cancel_protocol",
        )
        return made["id"], [told(await client.call_tool(each, named)) for each in actions]

    run_id, (started, paused, resumed, cancelled, again) = world.use(act, allow_actions=True)
    assert "queued" in started["message"]
    assert "No worker runs on this ledger" in started["note"]
    assert resumed["note"] == started["note"]
    assert (paused["status"], cancelled["status"], again["status"]) == ("paused", "cancelled", "cancelled")
    assert "note" not in paused
    assert actors(world, run_id) == {"mcp"}


@pytest.mark.soak
def test_nothing_is_noted_where_somebody_works(world: World) -> None:
    given = {"name": "counting", "inputs": {"text": "a bb"}}
    with world.ledger.write() as tx:
        register(tx, "a-worker", "worker", slots=1)
    started = world.use(lambda client: client.call_tool("run_workflow", given), allow_actions=True)
    with world.ledger.write() as tx:
        leave(tx, "a-worker", reason="the test is over")
    assert told(started)["note"] is None


@pytest.mark.soak
def test_tools_workflows_approvals_and_agents_can_be_used(world: World) -> None:
    with world.ledger.write() as tx:
        approval = request_approval(tx, once="mcp", subject="a change", question="may it?", run_id=None)

    async def act(client: Client) -> dict[str, dict[str, Any]]:
        wanted: dict[str, dict[str, Any]] = {
            "run_tool": {"tool": "double", "inputs": {"n": 21}},
            "rate_tool": {"tool": "double", "task": "doubling", "good": True},
            "run_workflow": {"name": "counting", "inputs": {"text": "a bb"}},
            "approve": {"approval_id": approval.id, "comment": "fine"},
            "rollback_agent": {"name": NAME},
            "send_feedback": {"name": NAME, "message": "be kinder", "severity": "low"},
        }
        return {name: told(await client.call_tool(name, given)) for name, given in wanted.items()}

    answers = world.use(act, allow_actions=True)
    assert (answers["run_tool"]["ok"], answers["run_tool"]["value"]) == (True, {"twice": 42})
    assert answers["rate_tool"] == {"done": True}
    assert answers["run_workflow"]["status"] == "pending"
    assert (answers["approve"]["status"], answers["approve"]["decided_by"]) == ("approved", "mcp")
    assert answers["rollback_agent"]["version"] == "0.0.0"
    assert actors(world, answers["send_feedback"]["run"]) == {"mcp"}


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("no_such_tool", {}),
    ("get_run", {}),
    ("get_run", {"run_id": "1"}),
    ("get_run", {"run_id": 0}),
    ("get_run", {"run_id": 2**63}),
    ("get_run", {"run_id": [1]}),
    ("get_run", {"run_id": 1, "and": "more"}),
    ("get_agent", {"name": "greeter/rollback"}),
    ("get_agent", {"name": "../../etc/passwd"}),
    ("get_agent", {"name": ""}),
    ("get_agent", {"name": "a\x00b"}),
    ("get_agent", {"name": "x" * 100_000}),
    ("get_agent", {"name": "a?b#c%2F"}),
    ("get_tool", {"tool": ".."}),
    ("read_artifact", {"sha256": "../../../ledger.db"}),
    ("read_attempt_log", {"attempt_id": 1, "max_bytes": 10**9}),
    ("list_events", {"type": "run.*\x00"}),
    ("list_events", {"since": 1, "before": 2}),
    ("wait_for_run", {"run_id": 1, "seconds": -1}),
    ("read_part", {"tool": "run_tool", "arguments": {"tool": "double", "inputs": {"n": 1}}}),
    ("read_part", {"tool": "get_run", "arguments": {"run_id": "x"}}),
    ("read_part", {"tool": "list_runs", "at": "/items/99999999"}),
    ("check_workflow", {"spec": []}),
    ("create_protocol", {"project_id": 1, "protocol_name": "../escape"}),
    ("answer_clarification", {"protocol_id": 1, "key": "../../agents/greeter", "answer": 1}),
    ("start_research", {"task": "/etc"}),
    ("start_research", {"task": "circle_packing", "engine": "replay:/etc/passwd"}),
    (
        "add_step",
        {
            "protocol_id": 1,
            "step_index": 9,
            "step_name": "09-x",
            "step_type": "work",
            "engine_id": "replay:/dev/zero",
        },
    ),
    ("run_tool", {"tool": "double", "inputs": {"n": "x"}, "timeout": 1e9}),
]


@pytest.mark.soak
def test_strange_requests_come_to_errors_with_a_message_and_to_nothing_else(world: World) -> None:
    async def ask(client: Client) -> list[tuple[str, bool, str]]:
        results = [(name, await client.call_tool(name, given)) for name, given in HOSTILE]
        return [(name, bool(result.is_error), text_of(result)) for name, result in results]

    before = world.last_event
    answers = world.use(ask, allow_actions=True)
    assert [answer for answer in answers if not answer[1] or not answer[2].startswith("error: ")] == []
    assert [text for _, _, text in answers if "Traceback" in text or "inside" in text] == []
    assert world.last_event == before


@pytest.mark.soak
def test_things_of_a_project_with_a_token_are_hidden_without_it(world: World) -> None:
    guarded = world.guarded
    numbers = {
        "project_id": guarded["project"],
        "protocol_id": guarded["protocol"],
        "run_id": guarded["protocol"],
        "step_id": guarded["step"],
        "attempt_id": guarded["attempt"],
        "sha256": guarded["artifact"],
    }

    async def ask(client: Client) -> dict[str, Any]:
        answers = {}
        for tool in (await client.list_tools()).tools:
            needed = tool.input_schema.get("required", [])
            taken = [name for name in numbers if name in tool.input_schema["properties"]]
            if taken and set(needed) <= set(numbers):
                chosen = needed or taken[:1]
                waiting = {"seconds": 0} if "seconds" in tool.input_schema["properties"] else {}
                answers[tool.name] = await client.call_tool(
                    tool.name, {each: numbers[each] for each in chosen} | waiting
                )
        lists = ("list_runs", "list_protocols", "list_events", "list_jobs")
        whole = {name: await client.call_tool(name, {"limit": 100}) for name in lists}
        return {**answers, **{f"{name}, all of them": result for name, result in whole.items()}}

    hidden = world.use(ask)
    shown = world.use(ask, project_token=PROJECT_TOKEN)
    assert {each.name for each in READING if "{protocol_id}" in each.path} <= set(hidden)
    for name, result in hidden.items():
        if name.endswith("all of them"):
            numbers_in = [each.get("project_id") for each in told(result)["items"]]
            assert guarded["project"] not in numbers_in, name
            assert "secret of guarded" not in text_of(result)
        else:
            assert result.is_error, name
    assert "--project-token-file" in text_of(hidden["get_protocol"])
    # A protocol is no run of a workflow.
    assert [name for name, result in shown.items() if result.is_error] == ["get_workflow_run"]
    assert "secret of guarded" in text_of(shown["read_protocol_log"])
    assert guarded["protocol"] in [run["id"] for run in told(shown["list_runs, all of them"])["items"]]


@pytest.mark.soak
def test_the_token_of_one_project_leaves_those_without_one_open(world: World) -> None:
    given = {"protocol_id": world.open["protocol"]}
    seen = world.use(lambda client: client.call_tool("get_protocol", given), project_token=PROJECT_TOKEN)
    assert told(seen)["id"] == world.open["protocol"]


@pytest.mark.soak
def test_a_wrong_project_token_opens_nothing(world: World) -> None:
    given = {"protocol_id": world.guarded["protocol"]}
    refused = world.use(lambda client: client.call_tool("get_protocol", given), project_token="wrong")
    assert refused.is_error
    assert "--project-token-file" in text_of(refused)
