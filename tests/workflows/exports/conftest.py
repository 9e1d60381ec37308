"""A runtime whose models are scripted, and a machine on which there is no Ratchet."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.config import Loaded
from ratchet.ledger import Ledger
from ratchet.modelserver import ModelServer
from ratchet.runtime import Runtime, Worker, open_runtime
from tests.modelserver.fixtures import model_server
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.workflows.exports.machine import Machine
from tests.workflows.exports.models import answer_by_prompt

__all__ = ["model_server"]


@pytest.fixture
def models(model_server: ModelServer, tmp_path: Path) -> str:
    """Where models answer, the same on every machine: the name of the script."""
    name = f"exports-{abs(hash(tmp_path))}"
    model_server.script(name, answer_by_prompt)
    return name


@pytest.fixture
def loaded(sqlite_template: Path, tmp_path: Path, model_server: ModelServer, models: str) -> Loaded:
    home = tmp_path / "home"
    home.mkdir()
    (home / "ledger.db").write_bytes(sqlite_template.read_bytes())
    flags = {
        "llm.default": "local/small",
        "llm.endpoints.local.base_url": model_server.openai_url(models),
        # Where a plain name such as llama3 is looked for.
        "llm.endpoints.ollama.kind": "ollama",
        "llm.endpoints.ollama.base_url": model_server.openai_url(models),
    }
    return load(home, f"sqlite:///{home}/ledger.db", **flags)


@pytest.fixture
def runtime(loaded: Loaded, ledger: Ledger) -> Runtime:
    return open_runtime(loaded, ledger, make_kinds())


@pytest.fixture
def machine(tmp_path: Path, worker: Worker) -> Machine:
    return Machine(tmp_path / "elsewhere")
