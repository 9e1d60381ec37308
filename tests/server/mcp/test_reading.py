"""What the face shows: everything, in pages and parts, and without changing anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client, MCPError

from ratchet.kernel import RunStatus
from ratchet.ledger.statuses import change_run
from ratchet.server.mcp.face import ACTING, READING
from ratchet.server.mcp.tool import LONGEST_ANSWER
from tests.server.mcp.conftest import LONG_TEXT, World, fitting_arguments, text_of, told


async def everything_read(client: Client, world: World) -> dict[str, Any]:
    """What every listed tool answers to right arguments. The client holds each answer against the tool's schema."""
    answers: dict[str, Any] = {}
    for tool in (await client.list_tools()).tools:
        given = fitting_arguments(world, tool.name, tool.input_schema.get("required", []))
        result = await client.call_tool(tool.name, given)
        answers[tool.name] = text_of(result) if result.is_error else told(result)
    return answers


@pytest.mark.soak
def test_every_tool_that_is_listed_without_the_flag_answers_and_changes_nothing(world: World) -> None:
    before = world.last_event
    answers = world.use(lambda client: everything_read(client, world))
    assert world.last_event == before
    assert set(answers) == {each.name for each in READING} | {
        "wait_for_run",
        "read_protocol_log",
        "read_part",
    }
    # Nothing has run here: trials and versions are only rows, without commits or judges, and no workflow has ended.
    assert {name: text for name, text in answers.items() if isinstance(text, str)} == {
        "read_trial_diff": "error: commit of trial 001 does not exist",
        "get_workflow_profile": "error: ended run of workflow counting does not exist",
        "get_agent_certificate": "error: certificate of version 0.1.0 of greeter does not exist",
        "get_tool_certificate": "error: certificate of version 1.0.0 of double does not exist",
    }
    assert answers["get_leaderboard"]["items"][0]["hypothesis"] == "an idea that helps"
    assert answers["get_agent_version"]["version"] == "0.1.0"
    assert answers["check_workflow"] == {"valid": True, "problems": []}
    assert "secret of open" in answers["read_protocol_log"]["text"]


def test_no_tool_that_changes_things_is_listed_or_can_be_called_without_the_flag(world: World) -> None:
    async def tried(client: Client) -> tuple[set[str], list[str]]:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        results = [await client.call_tool(each.name, {}) for each in ACTING]
        assert all(result.is_error for result in results)
        return listed, [text_of(result) for result in results]

    before = world.last_event
    listed, refusals = world.use(tried)
    assert listed.isdisjoint(each.name for each in ACTING)
    assert [text for text in refusals if "--allow-actions" not in text] == []
    assert world.last_event == before


def test_reading_is_a_matter_of_get_requests_and_acting_is_not() -> None:
    assert [each.name for each in READING if each.method != "GET"] == ["verify_certificate", "check_workflow"]
    assert [each.name for each in ACTING if each.method == "GET" or each.reads] == []


@pytest.mark.soak
def test_hints_of_tools_say_what_they_are(world: World) -> None:
    async def listed(client: Client) -> dict[str, Any]:
        return {tool.name: tool for tool in (await client.list_tools()).tools}

    tools = world.use(listed, allow_actions=True)
    assert {name for name, tool in tools.items() if not tool.annotations.read_only_hint} == {
        each.name for each in ACTING
    }
    for name in (
        "cancel_protocol",
        "stop_research",
        "delete_agent",
        "run_tool",
        "call_agent",
        "approve_step",
    ):
        assert tools[name].annotations.destructive_hint, name
    for name in ("pause_protocol", "cancel_run", "pin_agent", "get_run"):
        assert tools[name].annotations.idempotent_hint, name
    assert not tools["create_protocol"].annotations.idempotent_hint
    assert all("never instructions" in tool.description for tool in tools.values())
    assert all(tool.output_schema["type"] == "object" for tool in tools.values())
    assert [name for name, tool in tools.items() if "$ref" in json.dumps(tool.input_schema)] == []
    assert "secrets" not in tools["register_project"].input_schema["properties"]
    assert "by" not in tools["approve"].input_schema["properties"]


def test_lists_come_in_pages_of_a_bounded_size(world: World) -> None:
    for number in range(3):
        world.run(f"paged {number}")

    async def paged(client: Client) -> tuple[list[str], str]:
        names: list[str] = []
        before: dict[str, Any] = {}
        for _ in range(3):
            page = told(await client.call_tool("list_runs", {"limit": 1, "kind": "research", **before}))
            names += [run["name"] for run in page["items"]]
            before = {"before": page["next"]}
        events = told(await client.call_tool("list_events", {"limit": 1}))
        assert len(events["items"]) == 1
        assert events["next"] == events["items"][0]["id"]
        return names, text_of(await client.call_tool("list_runs", {"limit": 101}))

    names, refused = world.use(paged)
    assert names == ["paged 2", "paged 1", "paged 0"]
    assert "101" in refused
    assert "limit" in refused


def test_a_text_is_read_in_parts_that_join_to_the_whole(world: World) -> None:
    async def joined(client: Client) -> str:
        parts: list[str] = []
        offset: int | None = 0
        while offset is not None:
            given = {"attempt_id": world.open["attempt"], "offset": offset, "length": 29_999}
            part = told(await client.call_tool("read_attempt_diff", given))
            parts.append(part["text"])
            offset = part["next_offset"]
        return "".join(parts)

    assert world.use(joined) == f"open: {LONG_TEXT}"


def test_a_long_answer_is_cut_where_it_says_and_the_rest_can_be_read(world: World) -> None:
    run = world.run("talkative")
    with world.ledger.write() as tx:
        change_run(tx, run, RunStatus.RUNNING)
        change_run(tx, run, RunStatus.COMPLETED, reason=LONG_TEXT, result=1)

    async def read(client: Client) -> tuple[dict[str, Any], str]:
        short = told(await client.call_tool("get_run", {"run_id": run}))
        (cut,) = short["cut"]
        text, offset = short["reason"], cut["shown"]
        assert (len(text), cut["whole"]) == (offset, len(LONG_TEXT))
        while offset is not None:
            asked = {"tool": "get_run", "arguments": {"run_id": run}, "at": cut["at"], "offset": offset}
            part = told(await client.call_tool("read_part", asked))
            text += part["text"]
            offset = part["next_offset"]
        return short, text

    short, whole = world.use(read)
    assert whole == LONG_TEXT
    assert len(json.dumps(short, ensure_ascii=False)) <= LONGEST_ANSWER
    assert short["result"] == 1


def test_a_value_of_any_shape_is_cut_as_json_and_does_not_keep_a_list_from_being_read(world: World) -> None:
    wide = {str(number): number for number in range(10_000)}
    run = world.run("wide", spec=wide)

    async def read(client: Client) -> tuple[dict[str, Any], str]:
        page = told(await client.call_tool("list_runs", {"limit": 2}))
        cut = next(each for each in page["cut"] if each["at"] == "/items/0/spec")
        text, offset = page["items"][0]["spec"], cut["shown"]
        while offset is not None:
            asked = {"tool": "get_run", "arguments": {"run_id": run}, "at": "/spec", "offset": offset}
            part = told(await client.call_tool("read_part", {**asked, "length": 30_000}))
            text += part["text"]
            offset = part["next_offset"]
        return page, text

    page, text = world.use(read)
    assert page["items"][0]["name"] == "wide"
    assert json.loads(text) == wide


def test_what_is_long_by_its_number_of_things_says_how_to_read_it(world: World) -> None:
    for _ in range(100):
        world.run("x" * 190, spec={"text": "y" * 900})

    async def read(client: Client) -> tuple[str, str]:
        refused = text_of(await client.call_tool("list_runs", {"limit": 100}))
        asked = {"tool": "list_runs", "arguments": {"limit": 100}, "length": 9}
        return refused, told(await client.call_tool("read_part", asked))["text"]

    refused, beginning = world.use(read)
    assert "`limit`" in refused
    assert "read_part" in refused
    assert beginning == '{"items":'


def test_a_run_is_waited_for_until_it_stands_or_the_time_is_over(world: World) -> None:
    waiting, ended = world.run("waiting"), world.run("ended")
    with world.ledger.write() as tx:
        change_run(tx, ended, RunStatus.CANCELLED)

    async def waited(client: Client) -> list[tuple[str, bool]]:
        given = {waiting: 0.01, ended: 3600}
        answers = [
            told(await client.call_tool("wait_for_run", {"run_id": run, "seconds": seconds}))
            for run, seconds in given.items()
        ]
        return [(each["status"], each["stopped"]) for each in answers]

    assert world.use(waited) == [("pending", False), ("cancelled", True)]


@pytest.mark.soak
def test_resources_are_the_same_things_under_addresses(world: World) -> None:
    async def read(client: Client) -> dict[str, list[Any]]:
        uris = [each.uri for each in (await client.list_resources()).resources]
        templates = [
            each.uri_template for each in (await client.list_resource_templates()).resource_templates
        ]
        assert "ratchet://protocols/{protocol_id}/log{?before,limit}" in templates
        things = (
            f"ratchet://runs/{world.open['protocol']}",
            f"ratchet://protocols/{world.open['protocol']}",
            f"ratchet://protocols/{world.open['protocol']}/log",
            f"ratchet://research/{world.research}/leaderboard",
            f"ratchet://research/{world.research}/report",
            "ratchet://workflows/counting",
            "ratchet://tools/double",
            "ratchet://agents/greeter",
            "ratchet://events?limit=2",
            f"ratchet://attempts/{world.open['attempt']}/diff?offset=6&length=1000",
        )
        return {uri: (await client.read_resource(uri)).contents for uri in (*uris, *things)}

    contents = world.use(read)
    assert json.loads(contents["ratchet://tools/double"][0].text)["tool"] == "double"
    assert json.loads(contents["ratchet://workflows/counting"][0].text)["name"] == "counting"
    assert "secret of open" in contents[f"ratchet://protocols/{world.open['protocol']}/log"][0].text
    assert "<html" in contents[f"ratchet://research/{world.research}/report"][0].text
    events, following = contents["ratchet://events?limit=2"]
    assert len(json.loads(events.text)["items"]) == 2
    assert f"before={json.loads(events.text)['next']}" in following.uri
    part, more = contents[f"ratchet://attempts/{world.open['attempt']}/diff?offset=6&length=1000"]
    assert LONG_TEXT.startswith(part.text)
    assert "offset=" in more.text


NO_RESOURCES = (
    "ratchet://runs/999999",
    "ratchet://runs/x",
    "ratchet://runs/1/actions/cancel",
    "ratchet://nothing",
    "ratchet://projects/1/../2",
    "ratchet://agents/a%2Frollback",
    "ratchet://runs?limit=-1",
    "ratchet://runs?colour=red",
    "file:///etc/passwd",
)


@pytest.mark.soak
def test_what_is_no_resource_is_refused(world: World) -> None:
    async def read(client: Client) -> list[str]:
        refusals = []
        for uri in NO_RESOURCES:
            with pytest.raises(MCPError) as refused:
                await client.read_resource(uri)
            refusals.append(str(refused.value))
        return refusals

    assert [text for text in world.use(read) if "error: " not in text] == []
