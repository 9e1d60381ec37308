"""The `llm` engine on scripted models."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from ratchet.engines import Engine
from ratchet.modelserver import ModelServer, Script, Turn, hang, say
from tests.engines.conftest import Place
from tests.engines.contract import BYSTANDER, KEY, Subject

_numbers = itertools.count(1)


class LlmSubject(Subject):
    """Two endpoints of one kind, `local` and `spare`. The role `test` has the first, `both` the second as well."""

    def __init__(self, place: Place, server: ModelServer, kind: str = "openai") -> None:
        number = next(_numbers)
        self._place = place
        self._server = server
        self._kind = kind
        self._names = (f"llm-{number}", f"llm-{number}-spare")
        self.script = server.script(self._names[0], [])
        self.spare = server.script(self._names[1], [])

    def open(
        self,
        *turns: Turn,
        spare: Sequence[Turn] = (),
        llm: str = "",
        endpoint: str = "",
        more: str = "",
        option: str = "test",
        environment: Mapping[str, str] | None = None,
    ) -> Engine:
        """Models that take these turns. `llm` and `endpoint` are further keys of their tables, `more` is a table."""
        self.script = self._server.script(self._names[0], list(turns))
        self.spare = self._server.script(self._names[1], list(spare))
        return self.at(self.url, llm, endpoint, more, option, environment)

    def at(
        self,
        url: str,
        llm: str = "",
        endpoint: str = "",
        more: str = "",
        option: str = "test",
        environment: Mapping[str, str] | None = None,
    ) -> Engine:
        pause = "" if "retry_base_seconds" in llm else "retry_base_seconds = 0.01"
        toml = f"""
            [llm]
            {pause}
            {llm}
            [llm.roles.test]
            only = "local/scripted"
            [llm.roles.both]
            only = "local/scripted spare/scripted"
            [llm.endpoints.spare]
            kind = "{self._kind}"
            base_url = "{self._url(self._names[1])}"
            key_variable = "SPARE_KEY"
            [llm.endpoints.local]
            kind = "{self._kind}"
            base_url = "{url}"
            key_variable = "MODEL_KEY"
            {endpoint}
            {more}
        """
        keys = {"MODEL_KEY": KEY, "SPARE_KEY": KEY}
        return self._place.open(f"llm:{option}", toml, {**keys, **BYSTANDER, **(environment or {})})

    @property
    def url(self) -> str:
        return self._url(self._names[0])

    def _url(self, name: str) -> str:
        server = self._server
        return server.anthropic_url(name) if self._kind == "anthropic" else server.openai_url(name)

    def says(self, *texts: str) -> Engine:
        return self.open(*(say(text) for text in texts))

    def falls_silent(self) -> Engine:
        return self.open(hang())

    def cannot_connect(self) -> Engine:
        return self.at("http://127.0.0.1:9/v1")


def prompts(script: Script) -> list[str]:
    """What the model was told last in each request."""
    return [seen.newest for seen in script.requests]
