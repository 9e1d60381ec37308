"""The real Codex CLI on the scripted server, verified on disk."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from ratchet.modelserver import ModelServer, Turn, answer, call, call_freely, cut, fail, say
from ratchet.modelserver.server import codex_config
from tests.modelserver.conftest import NAME, Play

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+patched\n*** Update File: old.txt\n@@\n-old\n+new\n*** End Patch\n"


@dataclass(frozen=True)
class Ended:
    code: int
    events: list[dict[str, Any]]

    @property
    def failure(self) -> str:
        [event] = [each for each in self.events if each["type"] == "turn.failed"]
        return str(event["error"]["message"])

    @property
    def items(self) -> list[dict[str, Any]]:
        return [each["item"] for each in self.events if each["type"] == "item.completed"]


class Codex(Protocol):
    def __call__(self, *options: str, model: str = "scripted") -> Ended: ...


@pytest.fixture
def codex(model_server: ModelServer, tmp_path: Path, work: Path) -> Codex:
    """Runs the real program with the configuration that we print for people."""
    import codex_cli_bin

    home = tmp_path / "home"
    # Below CODEX_HOME, since a TMPDIR that holds it would break its sandbox.
    (home / "tmp").mkdir(parents=True)
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(home), "CODEX_HOME": str(home)}
    env["TMPDIR"] = str(home / "tmp")

    def run(*options: str, model: str = "scripted") -> Ended:
        config = codex_config(model_server.openai_url(NAME), model=model)
        (home / "config.toml").write_text(config)
        program = [str(codex_cli_bin.bundled_codex_path()), "exec", "--json", "--skip-git-repo-check"]
        done = subprocess.run(
            [*program, "-s", "workspace-write", "-C", str(work), *options, "go"],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Ended(done.returncode, [json.loads(line) for line in done.stdout.splitlines()])

    return run


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    (work / "old.txt").write_text("old\n")
    return work


def test_codex_edits_by_a_command_and_tells_its_usage(codex: Codex, play: Play, work: Path) -> None:
    script = play(call("exec_command", cmd="echo hi > f.txt"), say("all done"))
    ended = codex()
    assert (ended.code, (work / "f.txt").read_text()) == (0, "hi\n")
    assert [item["exit_code"] for item in ended.items if item["type"] == "command_execution"] == [0]
    assert ended.items[-1] == {"id": "item_2", "type": "agent_message", "text": "all done"}
    assert ended.events[-1]["usage"]["input_tokens"] == 200
    assert "Process exited with code 0" in script.requests[1].results[0]
    assert (script.problems, script.left) == ([], 0)


@pytest.mark.soak
def test_codex_edits_by_a_patch_where_the_model_is_offered_that_tool(
    codex: Codex, play: Play, work: Path
) -> None:
    script = play(call_freely("apply_patch", PATCH), Turn(text="done", thinking="that was easy"))
    ended = codex(model="gpt-5.5")
    assert ((work / "new.txt").read_text(), (work / "old.txt").read_text()) == ("patched\n", "new\n")
    assert [item["type"] for item in ended.items] == ["file_change", "reasoning", "agent_message"]
    assert "apply_patch" in script.requests[0].tools


def test_codex_asks_for_structured_output(codex: Codex, play: Play, tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}
    (tmp_path / "schema.json").write_text(json.dumps({**schema, "additionalProperties": False}))
    script = play(answer({"score": 0.5}))
    ended = codex("--output-schema", str(tmp_path / "schema.json"))
    assert json.loads(ended.items[-1]["text"]) == {"score": 0.5}
    assert script.requests[0].body["text"]["format"]["schema"]["required"] == ["score"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (fail(429), "429 Too Many Requests"),
        (cut(), "stream disconnected"),
        (Turn(error_code="context_length_exceeded"), "context window"),
        (Turn(text="and so on", ended="length"), "max_output_tokens"),
        (None, "script test is used up after 0 turns"),
    ],
)
def test_codex_meets_what_goes_wrong(codex: Codex, play: Play, turn: Turn | None, message: str) -> None:
    play(*([turn] if turn else []))
    ended = codex()
    assert ended.code == 1
    assert message in ended.failure
