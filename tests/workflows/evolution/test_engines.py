"""Real engines as authors, and tools that are questions to a model."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.ledger.tools import CallRow, get_tool, record_calls
from ratchet.modelserver import ModelServer, Tokens, Turn, answer
from ratchet.runtime import Runtime
from ratchet.workflows.evolution import evolve_tool
from tests.modelserver.fixtures import model_server  # noqa: F401 - fixture
from tests.runtime.worker_process import load
from tests.workflows.evolution.conftest import QUICK
from tests.workflows.evolution.lab import NAME, completed, current, prepared, put_tool, versions
from tests.workflows.evolution.variants import variant

pytestmark = [pytest.mark.usefixtures("worker"), pytest.mark.parametrize("url", ["sqlite"], indirect=True)]

AUTHOR = "You make one tool better"
LONG = "Be so kind as to say it back, please, word for word, and leave nothing out. Thank you very much."
_names = (f"evolution-{number}" for number in itertools.count(1))


class Model:
    """A scripted model: as an author it writes what it was told to, and otherwise says back what it was given."""

    def __init__(self, server: ModelServer) -> None:
        self.writes: dict[str, Any] = {}
        self.name = next(_names)
        self.script = server.script(self.name, self.turn)
        self.url = server.openai_url(self.name)

    def turn(self, body: dict[str, Any]) -> Turn:
        said = json.dumps(body["messages"])
        if AUTHOR in said:
            return answer({"summary": "shorter", "change_type": "patch", **self.writes})
        words = len(said.split())
        text = "no" if "briefly" in said else body["messages"][-1]["content"]
        return Turn(text, usage=Tokens(input=10 * words, output=5), repeat="always")


@pytest.fixture
def model(model_server: ModelServer) -> Model:  # noqa: F811 - the fixture
    return Model(model_server)


@pytest.fixture
def loaded(url: str, tmp_path: Path, model: Model) -> Loaded:
    program = f"open('tool.py', 'w').write({variant('direct', tmp_path)!r}); print('worked it out')"
    scripted = {
        "llm.endpoints.local.base_url": model.url,
        "llm.roles.test.only": "local/scripted",
        "llm.default": "test",
        "engines.command.mender.argv": [sys.executable, "-c", program.replace("{", "{{").replace("}", "}}")],
    }
    return load(tmp_path, url, **QUICK, **scripted)


@pytest.mark.soak
def test_a_model_answers_with_the_source(runtime: Runtime, ledger: Ledger, model: Model) -> None:
    prepared(ledger)
    model.writes = {"source": variant("direct", runtime.home)}
    run = completed(ledger, evolve_tool(runtime, NAME, engine="llm:test", actor="test"))
    assert run.result["promoted"], run.result["why"]
    assert (current(ledger).version, current(ledger).verdict["summary"]) == ("1.0.1", "shorter")
    assert model.script.problems == []


@pytest.mark.soak
def test_an_agent_edits_the_file(runtime: Runtime, ledger: Ledger) -> None:
    prepared(ledger)
    run = completed(ledger, evolve_tool(runtime, NAME, engine="mender", actor="test"))
    assert run.result["promoted"], run.result["why"]
    assert current(ledger).verdict["summary"] == "worked it out"


@pytest.mark.soak
def test_a_search_finds_a_constant_that_costs_less(runtime: Runtime, ledger: Ledger) -> None:
    """How often the tool counts for nothing is left to the search."""
    source = (
        "IDLE = 1_000_000  # search: 1..1_000_000 log\n\n\n"
        "def run(n):\n    for _ in range(IDLE):\n        pass\n    return {'sum': n * (n - 1) // 2}\n"
    )
    prepared(ledger, source=source)
    run = completed(ledger, evolve_tool(runtime, NAME, engine="search", actor="test"))
    assert run.result["promoted"], run.result["why"]
    assert "IDLE = 1_000_000 " not in current(ledger).definition["python"]["source"]


def put_echo(ledger: Ledger) -> None:
    """A tool that asks a model to say back a text, with calls on record."""
    with ledger.write() as tx:
        tool, version = put_tool(
            tx,
            "echo",
            type="llm",
            python=None,
            input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
            output_schema={"type": "string"},
            examples=[{"input": {"text": "ahoy"}, "output": "ahoy"}],
            llm={"role": "test", "system_prompt": LONG, "prompt_template": "{text}"},
        )
        rows = [
            CallRow(tool.id, version.id, True, 5.0, tx.now, input={"text": text}, output=text)
            for text in ("one", "two")
        ]
        record_calls(tx, rows)


@pytest.mark.soak
def test_a_prompt_that_costs_less_and_answers_as_well_is_promoted(
    runtime: Runtime, ledger: Ledger, model: Model
) -> None:
    put_echo(ledger)
    model.writes = {"system_prompt": "Say it back.", "prompt_template": "{text}"}
    run = completed(ledger, evolve_tool(runtime, "echo", engine="llm:test", actor="test"))
    assert run.result["promoted"], run.result["why"]
    assert "tokens" in run.result["why"]
    assert current(ledger, "echo").definition["llm"]["system_prompt"] == "Say it back."


@pytest.mark.soak
def test_a_cheaper_prompt_that_answers_worse_is_refused(
    runtime: Runtime, ledger: Ledger, model: Model
) -> None:
    put_echo(ledger)
    model.writes = {"system_prompt": "Say it briefly.", "prompt_template": "{text}"}
    run = completed(ledger, evolve_tool(runtime, "echo", engine="llm:test", actor="test"))
    assert not run.result["promoted"]
    assert "score 1" in str(versions(ledger, "echo")[1].reason)
    with ledger.read() as tx:
        assert get_tool(tx, "echo").current_id == versions(ledger, "echo")[0].id
