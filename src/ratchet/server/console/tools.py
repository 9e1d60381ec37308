"""Tools: found by what they are for, with their versions and how these have done, and tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Form, Query
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from ratchet.kernel import RatchetError, iso
from ratchet.ledger.tools import CallRow, ToolVersionStatus, calls_of
from ratchet.operations import Listing, NameWindow
from ratchet.server.console.access import ROOT, Acting
from ratchet.server.console.formats import ToolName, clean, cut, cut_text, tool_place
from ratchet.server.console.forms import (
    MORE,
    add_buttons,
    fields_of_schema,
    given_texts,
    read_values,
    takes_more,
)
from ratchet.server.console.page import Page, View
from ratchet.server.fields import Limit, Paging, TextFilter
from ratchet.server.operation import shown
from ratchet.tools import operations as of_tools
from ratchet.tools.definition import CALLABLE, ToolType
from ratchet.tools.operations import ToolVersionAnswer, get_tool, opened_toolbox
from ratchet.tools.registry import ToolVersion
from ratchet.workflows import tool_operations
from ratchet.workflows.evolution.parts import parts_of
from ratchet.workflows.tool_operations import ToolCallAnswer

router = APIRouter()
_FOUND = 20
_LAST_CALLS = 10
_LONGEST_SCHEMA = 10_000
_LONGEST_EXAMPLE = 5_000
# Longer than this nobody looks at a page that does not come.
_PATIENCE_SECONDS = 60.0


@router.get("/tools")
def tools(
    page: Page,
    q: Annotated[str | None, Query(max_length=2000)] = None,
    type: ToolType | None = None,
    tag: TextFilter = None,
    after: TextFilter = None,
    limit: Limit = 50,
) -> Response:
    """By name, or those that fit a task best, each with the reasons why."""
    found: Listing[Any]
    if q and q.strip():
        found = of_tools.search(page.api, q, type, tag, _FOUND)
    else:
        found = of_tools.list_(page.api, NameWindow(after or "", limit), type, tag)
    with opened_toolbox(page.api) as toolbox:
        broken = [{"name": each.name, "files": each.files, "reason": each.reason} for each in toolbox.broken]
    document = {
        "tools": list(map(shown, found.items)),
        "next": found.next,
        "q": q,
        "type": type,
        "tag": tag,
        "types": [str(each) for each in ToolType if each in CALLABLE],
        "broken": clean(broken[:_FOUND]),
        "broken_count": len(broken),
    }
    return page.show("tools.html", document, title="Tools", live={"type": "tool.*"})


@router.get("/tools/{tool}")
def tool(page: Page, tool: ToolName, pager: Paging, version: TextFilter = None) -> Response:
    """One tool; another version than the one that is called can be looked at by naming it."""
    with opened_toolbox(page.api) as toolbox:
        called = toolbox.get(tool)
        chosen = called if version in (None, called.version) else toolbox.get(tool, version)
    with page.api.read() as tx:
        whole = of_tools.whole(tx, chosen)
        versions = pager.cut(of_tools.versions_of(tx, called, before=pager.before, limit=pager.one_more))
        calls = calls_of(tx, chosen.id, limit=_LAST_CALLS)
    document = {
        "tool": shown(whole),
        "is_called": chosen.id == called.id,
        "definition": cut(whole.definition),
        "input_schema": cut(chosen.tool.input_schema, _LONGEST_SCHEMA),
        "output_schema": cut(chosen.tool.output_schema, _LONGEST_SCHEMA),
        "examples": [
            {
                "input": cut(each.input, _LONGEST_SCHEMA),
                "output": cut(each.output, _LONGEST_SCHEMA) if each.checked else None,
                "description": clean(each.description),
            }
            for each in chosen.tool.examples
        ],
        "versions": [_version(each, called) for each in versions.items],
        "next": versions.next,
        "calls": [_call(each) for each in calls],
        "why_not": _why_not(called, versions.items, more=versions.next is not None),
    }
    return page.show("tool.html", document, title=tool, live={"type": "tool.*"})


@router.post("/tools/{tool}/actions/feedback")
def feedback(
    page: Page,
    tool: ToolName,
    _: Acting,
    task: Annotated[str, Form(max_length=10_000)],
    good: Annotated[bool, Form()],
) -> Response:
    of_tools.feedback(page.api, tool, task, good)
    return page.done("It counts when tools for a like task are searched.", tool_place(tool))


def _page_of(page: View, tool: str) -> str:
    workflow = page.request.query_params.get("workflow")
    return tool_place(f"{workflow}/{tool}" if workflow else tool).removeprefix(ROOT)


add_buttons(
    router,
    (of_tools.pin, of_tools.unpin, of_tools.score, tool_operations.rollback, tool_operations.approve),
    "/tools/{tool}",
    _page_of,
)
add_buttons(router, (tool_operations.evolve,), "/tools/{tool}", "/workflows/runs/{it.run_id}")


def _why_not(called: ToolVersion, versions: Sequence[ToolVersionAnswer], more: bool) -> dict[str, str | None]:
    """Why an action on the tool cannot be done now; None where it can."""
    pinned = f"it is pinned at {called.version}" if called.pinned else None
    earlier = more or any(each.promoted_at and not each.is_called for each in versions)
    return {
        "unpin": None if called.pinned else "it is not pinned",
        "rollback": pinned or (None if earlier else "there is no earlier version to go back to"),
        "evolve": pinned or _obstacle(called),
    }


def _obstacle(called: ToolVersion) -> str | None:
    try:
        parts_of(called.tool)
    except RatchetError as error:
        return str(error)
    return None


def _version(found: ToolVersionAnswer, called: ToolVersion) -> dict[str, Any]:
    why_not = f"it was refused: {found.reason}" if found.status is ToolVersionStatus.REFUSED else None
    if called.pinned and found.is_called:
        why_not = "it is pinned here"
    return {**shown(found).model_dump(), "why_not_pin": why_not}


def _call(row: CallRow) -> dict[str, Any]:
    """A call in short. Inputs and outputs are kept only as far as they are small."""
    return {
        "at": iso(row.at),
        "ok": row.ok,
        "error": clean(row.error),
        "wall_ms": row.wall_ms,
        "cost_microusd": row.cost_microusd,
        "unpriced_tokens": row.unpriced_tokens,
        "run_id": row.run_id,
        "step": clean(row.step),
        "score": row.score,
        "simulated": row.simulated,
        "input": None if row.input is None else cut(row.input, _LONGEST_SCHEMA),
        "output": None if row.output is None else cut(row.output, _LONGEST_SCHEMA),
    }


@router.get("/tools/{tool}/try")
def ask(page: Page, tool: ToolName) -> Response:
    return _form(page, get_tool(page.api, tool))


@router.post("/tools/{tool}/try")
async def call(page: Page, tool: ToolName, _: Acting) -> Response:
    """Call it with what was filled in. What it answers stands below the form, as does why it failed."""
    called = await run_in_threadpool(get_tool, page.api, tool)
    form = await page.request.form()
    values = read_values(fields_of_schema(called.tool.input_schema), form)
    answer = await tool_operations.call_version(page.api, called, values, _PATIENCE_SECONDS)
    return _form(page, called, form, answer)


@router.get("/tools/{tool}/examples")
def show_examples(page: Page, tool: ToolName) -> Response:
    called = get_tool(page.api, tool)
    listed = [_example(each.input, each.checked, each.output) for each in called.tool.examples]
    return _examples(page, called, listed, passed=None)


@router.post("/tools/{tool}/examples")
async def run_examples(page: Page, tool: ToolName, _: Acting) -> Response:
    """Run them, and say for each what came of it."""
    called = await run_in_threadpool(get_tool, page.api, tool)
    tested = await tool_operations.try_version(page.api, called, _PATIENCE_SECONDS)
    listed = [
        {
            **_example(each.input, each.checked, each.expected),
            "passed": each.passed,
            "got": cut(each.got, _LONGEST_EXAMPLE),
            "why": clean(each.why),
            "wall_ms": each.metrics.get("wall_ms"),
        }
        for each in tested.examples
    ]
    return _examples(page, called, listed, passed=tested.passed)


def _form(
    page: View,
    called: ToolVersion,
    given: Mapping[str, Any] | None = None,
    answer: ToolCallAnswer | None = None,
) -> Response:
    schema = called.tool.input_schema
    fields = fields_of_schema(schema, None if given is None else given_texts(given))
    document = {
        "tool": called.name,
        "tool_version": called.version,
        "problem": called.tool.refusal,
        "description": clean(called.tool.description),
        "fields": clean([each.data() for each in fields]),
        "takes_more": takes_more(schema),
        "more": clean(str((given or {}).get(MORE, ""))),
        "answer": None if answer is None else _answer(answer),
    }
    return page.show("tool_try.html", document, title=f"Try {called.name}")


def _answer(answer: ToolCallAnswer) -> dict[str, Any]:
    return {
        "ok": answer.ok,
        "value": cut(answer.value),
        "error": clean(answer.error),
        "hint": clean(answer.hint),
        "metrics": clean(answer.metrics),
        "said": cut_text(answer.said),
        "simulated": answer.simulated,
    }


def _example(given: Any, checked: bool, expected: Any) -> dict[str, Any]:
    """One that was not run."""
    return {
        "input": cut(given, _LONGEST_EXAMPLE),
        "expected": cut(expected, _LONGEST_EXAMPLE) if checked else None,
        "passed": None,
        "got": None,
        "why": None,
        "wall_ms": None,
    }


def _examples(
    page: View, called: ToolVersion, listed: list[dict[str, Any]], *, passed: bool | None
) -> Response:
    document = {"tool": called.name, "tool_version": called.version, "examples": listed, "passed": passed}
    return page.show("tool_examples.html", document, title=f"Examples of {called.name}")
