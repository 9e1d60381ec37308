"""The real Codex CLI on the scripted model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from ratchet.engines import Engine
from ratchet.modelserver import ModelServer, Script, Turn, call, hang, say
from tests.engines.conftest import Place
from tests.engines.contract import BYSTANDER, KEY, Subject

_numbers = itertools.count(1)


class CodexSubject(Subject):
    def __init__(self, place: Place, server: ModelServer) -> None:
        self._place = place
        self._server = server
        self._name = f"codex-{next(_numbers)}"
        self.script: Script | None = None

    def open(
        self,
        *turns: Turn,
        toml: str = "",
        model: str = "mock-model",
        environment: Mapping[str, str] | None = None,
    ) -> Engine:
        """Codex with a model that takes these turns; `toml` are further keys of its table."""
        self.script = self._server.script(self._name, list(turns))
        return self.at(self._server.openai_url(self._name), toml, model, environment)

    def at(
        self,
        url: str,
        toml: str = "",
        model: str = "mock-model",
        environment: Mapping[str, str] | None = None,
    ) -> Engine:
        table = (
            f'[engines.codex]\nbase_url = "{url}"\nmodel = "{model}"\nkey_variable = "MODEL_KEY"\n{toml}\n'
        )
        return self._place.open("codex", table, {"MODEL_KEY": KEY, **BYSTANDER, **(environment or {})})

    def says(self, *texts: str) -> Engine:
        return self.open(*(say(text) for text in texts))

    def falls_silent(self) -> Engine:
        return self.open(hang())

    def cannot_connect(self) -> Engine:
        return self.at("http://127.0.0.1:9/v1", "retries = 0")

    def runs(self, command: str) -> Engine:
        return self.open(call("exec_command", cmd=command), say("done"))
