"""Reading tools that are more than one endpoint: waiting for a run, and the rest of an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ratchet.kernel import Misuse, RunStatus
from ratchet.ledger import Ledger
from ratchet.ledger.ledger import run_at_rest
from ratchet.server.fields import MAX_ID
from ratchet.server.mcp.api import LONGEST_ANSWER, Asker, as_text, at
from ratchet.server.mcp.tool import (
    LONGEST_TEXT,
    TEXT_PART,
    Declared,
    Document,
    Given,
    Offered,
    Told,
)

_LONGEST_WAIT = 3600
_USUAL_WAIT = 30
_ID: Document = {"type": "integer", "minimum": 1, "maximum": MAX_ID}


def waiting_tool(get_run: Offered, ledger: Ledger) -> Offered:
    """`get_run`, once the run stops or the time is over."""

    async def run(asker: Asker, given: Given) -> Told:
        asked = {"run_id": given["run_id"]}
        # Asked first: it tells whether there is such a run, and whether the caller may see it.
        found = await get_run.run(asker, asked)
        await run_at_rest(ledger, found["id"], given.get("seconds", _USUAL_WAIT))
        now = await get_run.run(asker, asked)
        return {**now, "stands": RunStatus(now["status"]).stands}

    return Offered(
        Declared(
            "wait_for_run",
            "Wait for a run",
            "Wait until a run of any kind has ended, is paused or blocked, and show it; after `seconds` as it is then. "
            "Call it again until `stands` is true. Stay below the time that your client gives a tool, often 60 s.",
            "GET /runs/{run_id}",
            reads=True,
            is_resource=False,
            repeatable=True,
        ),
        _object(
            {
                "run_id": _ID,
                "seconds": {
                    "type": "number",
                    "minimum": 0,
                    "maximum": _LONGEST_WAIT,
                    "default": _USUAL_WAIT,
                    "description": "how long to wait at most",
                },
            },
            "run_id",
        ),
        {
            **get_run.answer,
            "properties": {
                **get_run.answer["properties"],
                "stands": {"type": "boolean", "description": "whether nothing happens any more by itself"},
            },
            "required": [*get_run.answer["required"], "stands"],
        },
        run,
    )


def part_tool(tools: Mapping[str, Offered], checked: Callable[[Offered, Given], Given]) -> Offered:
    """The rest of what another reading tool has cut. `checked` makes sure of that tool's arguments."""

    async def run(asker: Asker, given: Given) -> Told:
        name = given["tool"]
        if name not in tools:
            raise Misuse(f"{name[:80]!r} is no reading tool", hint=f"there are: {', '.join(tools)}")
        answer = await tools[name].run(asker, checked(tools[name], given.get("arguments", {})))
        try:
            found = at(answer, given.get("at", ""))
        except (KeyError, IndexError, TypeError, ValueError):
            raise Misuse(
                f"the answer of {name} has nothing at {given['at'][:80]!r}", hint="take `at` from its `cut`"
            ) from None
        text = as_text(found)
        begin = given.get("offset", 0)
        end = begin + given.get("length", LONGEST_TEXT)
        return {"text": text[begin:end], "next_offset": end if end < len(text) else None, "size": len(text)}

    return Offered(
        Declared(
            "read_part",
            "Read the rest of an answer",
            "A part of a text that another reading tool has cut, or of an answer that was too long: name the tool, its "
            "arguments and, from its `cut`, where the text is. Offsets count characters.",
            "GET /",
            reads=True,
            is_resource=False,
            repeatable=True,
        ),
        _object(
            {
                "tool": {"type": "string", "maxLength": 100, "description": "the tool that was called"},
                "arguments": {"type": "object", "default": {}, "description": "what it was called with"},
                "at": {
                    "type": "string",
                    "maxLength": 1000,
                    "default": "",
                    "description": "a JSON pointer into its answer; all of it as JSON, if empty",
                },
                "offset": {"type": "integer", "minimum": 0, "default": 0},
                "length": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": LONGEST_ANSWER // 2,
                    "default": LONGEST_TEXT,
                },
            },
            "tool",
        ),
        TEXT_PART,
        run,
    )


def _object(properties: Document, *required: str) -> Document:
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }
