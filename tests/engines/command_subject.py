"""A described agent on the scripted model."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

from ratchet.engines import Engine
from ratchet.modelserver import ModelServer, Turn, call, hang, say
from tests.engines.conftest import Place
from tests.engines.contract import BYSTANDER, KEY, Subject

_numbers = itertools.count(1)
_DESCRIPTION = """
[engines.command.mine]
argv = ["{program}", "{url}"]
environment = ["AGENT_API_KEY"]
answer = "json:result"
input_tokens_at = "tokens.prompt_tokens"
output_tokens_at = "tokens.completion_tokens"
exit_codes = ["75=rate_limited"]
patterns = ["rate_limited=retry after (?P<seconds>[0-9.]+)", "refused=status 40[13]"]
nothing_done = "could not connect|status"
{more}
"""


def agent(directory: Path, program: str | None = None) -> Path:
    """A program in `directory` that does what the Python code `program` says, or asks a model as an agent does."""
    directory.mkdir(exist_ok=True)
    path = directory / "agent"
    text = (Path(__file__).parent / "agent_program.py").read_text() if program is None else program
    path.write_text(f"#!{sys.executable} -IS\n{text}")
    path.chmod(0o755)
    return path


class CommandSubject(Subject):
    def __init__(self, place: Place, server: ModelServer, directory: Path) -> None:
        self._place = place
        self._server = server
        self._program = agent(directory)
        self._name = f"command-{next(_numbers)}"

    def open(self, *turns: Turn, more: str = "") -> Engine:
        self._server.script(self._name, list(turns))
        return self.at(self._server.openai_url(self._name), more)

    def at(self, url: str, more: str = "") -> Engine:
        toml = _DESCRIPTION.format(program=self._program, url=url, more=more)
        return self._place.open("mine", toml, {"AGENT_API_KEY": KEY, **BYSTANDER})

    def says(self, *texts: str) -> Engine:
        return self.open(*(say(text) for text in texts))

    def falls_silent(self) -> Engine:
        return self.open(hang())

    def cannot_connect(self) -> Engine:
        return self.at("http://127.0.0.1:9/v1")

    def runs(self, command: str) -> Engine:
        return self.open(call("shell", cmd=command), say("done"))


class Bench:
    """Opens described agents whose program is a few lines of Python."""

    def __init__(self, place: Place, directory: Path) -> None:
        self._place = place
        self._directory = directory

    def open(self, program: str, toml: str = "", arguments: str = "", **environment: str) -> Engine:
        path = agent(self._directory, program)
        argv = json.dumps([str(path), *arguments.split()])
        return self._place.open("mine", f"[engines.command.mine]\nargv = {argv}\n{toml}", environment)
