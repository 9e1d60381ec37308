"""A tool that the real Codex CLI rewrites in its workspace; only the model is scripted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.ledger.usage import list_sessions
from ratchet.modelserver import ModelServer, call, say
from ratchet.runtime import Runtime, Worker, open_ledger, open_runtime
from ratchet.workflows.evolution import evolve_tool
from tests.engines.contract import KEY
from tests.modelserver.fixtures import model_server
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.workflows.evolution.lab import NAME, completed, current, prepared
from tests.workflows.evolution.variants import variant

__all__ = ["model_server"]
pytestmark = [pytest.mark.soak, pytest.mark.parametrize("url", ["sqlite"], indirect=True)]


@pytest.fixture
def runtime(
    url: str, tmp_path: Path, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Runtime]:
    """A home in which Codex is configured as a person would, and a worker."""
    monkeypatch.setenv("MODEL_KEY", KEY)
    (tmp_path / "ratchet.toml").write_text(
        f'[engines.codex]\nbase_url = "{model_server.openai_url("author")}"\nmodel = "gpt-5.5"\n'
        'key_variable = "MODEL_KEY"\n[workflows.evolution]\ncases = 2\n'
    )
    loaded = load(tmp_path, url)
    with open_ledger(loaded) as ledger:
        opened = open_runtime(loaded, ledger, make_kinds())
        worker = Worker(opened)
        worker.start()
        yield opened
        worker.stop(drain_seconds=0)


def test_codex_rewrites_a_slow_tool_and_only_what_is_better_is_promoted(
    runtime: Runtime, model_server: ModelServer, tmp_path: Path
) -> None:
    prepared(runtime.ledger)
    before = current(runtime.ledger)
    faster = variant("direct", tmp_path)
    script = model_server.script(
        "author",
        [call("exec_command", cmd=f"cat > tool.py <<'END'\n{faster}END"), say("It adds up by formula.")],
    )
    run = completed(
        runtime.ledger, evolve_tool(runtime, NAME, engine="codex", why="It is slow.", actor="test")
    )
    assert run.result["promoted"], run.result
    assert "It is slow." in script.requests[0].said
    after = current(runtime.ledger)
    assert (after.parent_id, after.definition["python"]["source"]) == (before.id, faster)
    with runtime.ledger.read() as tx:
        assert [session.engine for session in list_sessions(tx, run_id=run.id)] == ["codex"]
