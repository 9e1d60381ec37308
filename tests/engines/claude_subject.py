"""The `claude` engine with a scripted model behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.engines import Engine
from ratchet.modelserver import ModelServer, ScriptedCall, Turn, call, hang, say
from tests.engines.conftest import Place
from tests.engines.contract import BYSTANDER, KEY, Subject

NOBODY = "http://127.0.0.1:9"


class ClaudeSubject(Subject):
    # Its stream tells of the prompt first, which alone is over the budget: it may be ended before the rest.
    told_over_budget = 100

    def __init__(self, place: Place, server: ModelServer) -> None:
        self._place = place
        self._server = server

    def plays(self, turns: Sequence[Turn], **settings: Any) -> Engine:
        """Lets the model answer with `turns`; the settings are those of `engines.claude`."""
        self.script = self._server.script("claude", turns)
        return self.open(**settings)

    def open(self, *, around: Mapping[str, str] | None = None, **settings: Any) -> Engine:
        table = {
            "base_url": self._server.anthropic_url("claude"),
            "retries": 0,
            "model": "claude-scripted",
            **settings,
        }
        lines = "".join(
            f"{name} = {json.dumps(value)}\n" for name, value in table.items() if value is not None
        )
        return self._place.open(
            "claude", f"[engines.claude]\n{lines}", {"ANTHROPIC_API_KEY": KEY, **BYSTANDER, **(around or {})}
        )

    def says(self, *texts: str) -> Engine:
        left = list(texts)

        def ask(body: dict[str, Any]) -> Turn:
            text = left.pop(0)
            answers = "StructuredOutput" in {tool["name"] for tool in body["tools"]}
            if answers and text.startswith("{"):
                return Turn(calls=(ScriptedCall("StructuredOutput", text),))
            return say(text)

        self.script = self._server.script("claude", ask)
        return self.open()

    def falls_silent(self) -> Engine:
        return self.plays([hang(after=1)])

    def cannot_connect(self) -> Engine:
        return self.open(base_url=NOBODY)

    def runs(self, command: str) -> Engine:
        return self.plays([call("Bash", command=command), say("done")])
