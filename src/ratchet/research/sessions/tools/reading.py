"""Reading on in an answer that was too long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ratchet.engines import Tool
from ratchet.kernel import NotFound
from ratchet.research.sessions.sitting import Sitting
from ratchet.research.sessions.tools.forms import OFFSET, form


def read_output(sitting: Sitting) -> Tool:
    async def use(given: Mapping[str, Any]) -> str:
        found = sitting.outputs.read(given["output"], given.get("offset", 0))
        if found is None:
            raise NotFound("output", given["output"])
        return found

    return Tool(
        "read_output",
        "Read on in the answer of a tool that was cut. The answer says which output and offset that is.",
        form({"output": {"type": "integer", "minimum": 1}}, {"offset": OFFSET}),
        use,
    )
