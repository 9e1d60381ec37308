"""Trying a tool: with inputs of one's own, or with its examples as tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from ratchet.server.console.access import Acting
from ratchet.server.console.formats import clean, cut, cut_text
from ratchet.server.console.forms import MORE, fields_of_schema, given_texts, read_values, takes_more
from ratchet.server.console.page import Page, View
from ratchet.server.routes import tools as routes
from ratchet.server.routes.tools import Call, ToolName, Trial, opened_toolbox
from ratchet.tools.registry import ToolVersion

router = APIRouter()
_LONGEST_EXAMPLE = 5_000
# Longer than this nobody looks at a page that does not come.
_PATIENCE_SECONDS = 60.0


@router.get("/tools/{tool}/try")
def ask(page: Page, tool: ToolName) -> Response:
    return _form(page, _called(page, tool))


@router.post("/tools/{tool}/try")
async def answer(page: Page, tool: ToolName, _: Acting) -> Response:
    """Call it with what was filled in. What it answers stands below the form, as does why it failed."""
    called = await run_in_threadpool(_called, page, tool)
    form = await page.request.form()
    values = read_values(fields_of_schema(called.tool.input_schema), form)
    told = await routes.run(
        page.api, tool, Call(inputs=values, version=called.version, timeout=_PATIENCE_SECONDS)
    )
    return _form(page, called, form, told)


@router.get("/tools/{tool}/examples")
def examples(page: Page, tool: ToolName) -> Response:
    called = _called(page, tool)
    shown = [_example(each.input, each.checked, each.output) for each in called.tool.examples]
    return _examples(page, called, shown, passed=None)


@router.post("/tools/{tool}/examples")
async def run_examples(page: Page, tool: ToolName, _: Acting) -> Response:
    """Run them, and say for each what came of it."""
    called = await run_in_threadpool(_called, page, tool)
    told = await routes.examples(page.api, tool, Trial(timeout=_PATIENCE_SECONDS))
    shown = [
        {
            **_example(each["input"], each["checked"], each["expected"]),
            "passed": each["passed"],
            "got": cut(each["got"], _LONGEST_EXAMPLE),
            "why": clean(each["why"]),
            "wall_ms": each["metrics"].get("wall_ms"),
        }
        for each in told["examples"]
    ]
    return _examples(page, called, shown, passed=told["passed"])


def _called(page: View, tool: str) -> ToolVersion:
    with opened_toolbox(page.api) as toolbox:
        return toolbox.get(tool)


def _form(
    page: View,
    called: ToolVersion,
    given: Mapping[str, Any] | None = None,
    told: Mapping[str, Any] | None = None,
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
        "answer": None if told is None else _answer(told),
    }
    return page.show("tool_try.html", document, title=f"Try {called.name}")


def _answer(told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "ok": told["ok"],
        "value": cut(told["value"]),
        "error": clean(told["error"]),
        "hint": clean(told["hint"]),
        "metrics": clean(told["metrics"]),
        "said": cut_text(told["said"] or ""),
        "simulated": told["simulated"],
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
    page: View, called: ToolVersion, shown: list[dict[str, Any]], *, passed: bool | None
) -> Response:
    document = {"tool": called.name, "tool_version": called.version, "examples": shown, "passed": passed}
    return page.show("tool_examples.html", document, title=f"Examples of {called.name}")
