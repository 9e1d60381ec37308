"""A tool of a real MCP server as a step: listed by the server, called over its pipes, its failure named."""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ratchet.runtime import Worker, open_ledger, open_runtime
from ratchet.tools.invocation import take_server
from ratchet.tools.registry import open_toolbox
from tests.engines.llm import lab
from tests.runtime.kinds import make_kinds
from tests.runtime.worker_process import load
from tests.workflows.running.settled import run
from tests.workflows.running.tools import function, workflow


@pytest.mark.soak
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_tool_of_a_server_is_a_step(url: str, tmp_path: Path) -> None:
    loaded = load(tmp_path, url, **{"tools.mcp.lab.argv": f"{sys.executable} {lab.__file__}"})
    with open_ledger(loaded) as ledger:
        runtime = open_runtime(loaded, ledger, make_kinds())
        with closing(open_toolbox(ledger, loaded.settings, loaded.home)) as toolbox:
            asyncio.run(take_server(runtime, toolbox, "lab", actor="test"))
        worker = Worker(runtime)
        worker.start()
        try:
            spec = workflow(
                "adds",
                function("add", "mcp_lab_add", input_mapping={"a": 20, "b": 22}),
                function("after", "identity", input_mapping={"value": "steps.add.output.result"}),
                function("bad", "mcp_lab_fail"),
            )
            done = run(runtime, spec)
        finally:
            worker.stop(drain_seconds=0)
    assert done["outputs"] == {"after": 42}
    assert done["steps"]["add"]["metrics"]["wall_ms"] > 0
    assert done["error"].startswith("bad: ")
