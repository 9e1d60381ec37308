"""Turns of `ratchet chat` with a model that answers at once: what is left is what a turn costs by itself."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.stage import die_with_parent
from ratchet.modelserver import ModelServer, Turn, say

_PATIENCE_SECONDS = 240
_PLAN = {
    "workflow_id": "joke",
    "description": "writes a joke",
    "inputs": [],
    "outputs": [
        {"name": "joke", "type": "string", "source_reference": "steps.write.output", "description": "it"}
    ],
    "steps": [
        {
            "step_id": "write",
            "type": "llm_call",
            "description": "writes it",
            "tool": None,
            "prompt_template": "Write a joke.",
            "generate_tool": False,
            "operation_type": None,
            "input_mapping": [],
            "output_name": "output",
            "depends_on": [],
            "when": None,
            "for_each": None,
        }
    ],
}


def turn_seconds(place: Path, turns: int) -> tuple[list[float], float]:
    """How long each turn took from the line to its answer, and how long the model took for those two calls."""
    spent: list[float] = []

    def answer(body: dict[str, Any]) -> Turn:
        began = time.perf_counter()
        turn = say(json.dumps(_PLAN) if "workflow_id" in json.dumps(body) else "A joke.")
        spent.append(time.perf_counter() - began)
        return turn

    home = place / ".ratchet"
    home.mkdir(parents=True)
    with ModelServer() as server:
        server.script("chat", answer)
        (home / "ratchet.toml").write_text(
            f'[llm]\ndefault = "local/scripted"\n[llm.endpoints.local]\nbase_url = "{server.openai_url("chat")}"\n'
        )
        chat = subprocess.Popen(
            [sys.executable, "-m", "ratchet.cli", "--home", str(home), "chat", "--json"],
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        with chat:
            # The first turns make the ledger and load what later ones have.
            took = [_turn(chat, number) for number in range(turns + 2)][2:]
            assert chat.stdin is not None
            chat.stdin.close()
    return took, sum(spent)


def _turn(chat: subprocess.Popen[str], number: int) -> float:
    assert chat.stdin is not None
    assert chat.stdout is not None
    began = time.perf_counter()
    # Another number is another wish: no plan is used again.
    chat.stdin.write(f"Write joke number {number} about tides\n")
    chat.stdin.flush()
    if not select.select([chat.stdout], [], [], _PATIENCE_SECONDS)[0]:
        raise RuntimeError(f"turn {number} of the chat has no answer after {_PATIENCE_SECONDS} s")
    answered = json.loads(chat.stdout.readline())
    assert answered["status"] == "completed", answered
    return time.perf_counter() - began
