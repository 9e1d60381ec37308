"""The real Codex CLI with `ratchet mcp` among its servers: it calls a tool, and the answer reaches the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import codex_cli_bin
import pytest

from ratchet.modelserver import ModelServer, call_mcp, say
from ratchet.modelserver.server import codex_config
from tests.modelserver.fixtures import model_server  # noqa: F401 - a fixture
from tests.server.mcp.conftest import World
from tests.server.mcp.programs import SOURCE
from tests.server.mcp.test_guide import blocks


@pytest.mark.soak
def test_codex_calls_a_tool_and_its_model_reads_the_answer(
    world: World,
    model_server: ModelServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    (home / "tmp").mkdir(parents=True)
    programs = tmp_path / "bin"
    programs.mkdir()
    ratchet = programs / "ratchet"
    ratchet.write_text(f'#!/bin/sh\nPYTHONPATH={SOURCE} exec {sys.executable} -m ratchet.cli "$@"\n')
    ratchet.chmod(0o755)
    script = model_server.script(
        "codex-mcp",
        [
            call_mcp("ratchet", "read_protocol_log", protocol_id=world.open["protocol"]),
            call_mcp("ratchet", "get_protocol", protocol_id=world.guarded["protocol"]),
            say("done"),
        ],
    )
    # The configuration that we print for people, and the snippet of the guide.
    snippet = blocks("toml")[0].replace("/path/to/.ratchet", str(world.home))
    (home / "config.toml").write_text(codex_config(model_server.openai_url("codex-mcp")) + "\n" + snippet)
    env = {"LANG": "C.UTF-8", "HOME": str(home), "CODEX_HOME": str(home), "TMPDIR": str(home / "tmp")}
    done = subprocess.run(
        [
            str(codex_cli_bin.bundled_codex_path()),
            "exec",
            "--json",
            "--skip-git-repo-check",
            "-C",
            str(tmp_path),
            "go",
        ],
        env={**env, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert script.problems == []
    assert "secret of open" in script.requests[1].results[0]
    assert "has a token of its own" in script.requests[2].results[-1]
    calls = [json.loads(line) for line in done.stdout.splitlines()]
    assert [
        each["item"]["tool"] for each in calls if each["type"] == "item.completed" and "tool" in each["item"]
    ] == [
        "read_protocol_log",
        "get_protocol",
    ]
