"""A repository, and scripted reviewers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from ratchet.engines.registry import EngineContext
from ratchet.modelserver import ModelServer, Script, Turn
from tests.engines.conftest import Place
from tests.modelserver.fixtures import model_server
from tests.protocols.qa.ground import Ground

__all__ = ["model_server"]
_numbers = itertools.count(1)
_LLM = """
[protocols]
reviewer = "llm:test"
session_seconds = 20
[llm]
retry_base_seconds = 0.01
tries = 1
[llm.roles.test]
only = "local/scripted"
[llm.endpoints.local]
kind = "openai"
base_url = "{url}"
key_variable = "MODEL_KEY"
"""


class Desk:
    """Opens reviewers: one that is a scripted model, or whatever the settings describe."""

    def __init__(self, place: Place, server: ModelServer) -> None:
        self._place = place
        self._server = server
        self._name = f"reviewer-{next(_numbers)}"
        self.script: Script = server.script(self._name, [])

    def says(self, *turns: Turn) -> EngineContext:
        """The reviewer takes these turns."""
        self.script = self._server.script(self._name, list(turns))
        return self.described(_LLM.format(url=self._server.openai_url(self._name)))

    def at_providers(self, keys: Iterable[str]) -> EngineContext:
        """Providers with these variables for a key are the scripted server."""
        names = [key.removesuffix("_API_KEY").lower() for key in keys]
        server, anthropic = self._server, "anthropic"
        urls = {
            name: (server.anthropic_url if name == anthropic else server.openai_url)(self._name)
            for name in names
        }
        return self.described(
            "".join(f'[llm.endpoints.{name}]\nbase_url = "{url}"\n' for name, url in urls.items())
        )

    def described(self, toml: str) -> EngineContext:
        return self._place.surroundings(toml, {"MODEL_KEY": "key"})

    @property
    def prompt(self) -> str:
        """What the reviewer was asked last."""
        return self.script.requests[-1].newest


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path / "repo.git")
    yield made
    made.repository.close()


@pytest.fixture
def desk(tmp_path: Path, model_server: ModelServer) -> Desk:
    return Desk(Place(tmp_path / "home"), model_server)
