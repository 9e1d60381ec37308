"""The real Claude, through its SDK, on the scripted server, verified on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.modelserver import ModelServer, call, call_mcp, fail, say
from ratchet.modelserver.server import claude_environment
from tests.modelserver.conftest import NAME, Play

Claude = Callable[..., Awaitable[list[Any]]]


@pytest.fixture
def run_claude(model_server: ModelServer, tmp_path: Path) -> Claude:
    """Runs the real program with the environment that we print for people; its messages."""
    home = tmp_path / "home"
    home.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    environment = claude_environment(model_server.anthropic_url(NAME))

    async def run(**options: Any) -> list[Any]:
        from claude_agent_sdk import ClaudeAgentOptions, query

        env = {**environment, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home)}
        asked = ClaudeAgentOptions(
            cwd=work,
            model="claude-scripted",
            setting_sources=[],
            permission_mode="acceptEdits",
            env=env,
            stderr=lambda _line: None,
            **options,
        )
        return [message async for message in query(prompt="go", options=asked)]

    return run


@pytest.mark.soak
def test_claude_writes_a_file_and_calls_a_tool_of_this_process(
    run_claude: Claude, play: Play, tmp_path: Path
) -> None:
    from claude_agent_sdk import create_sdk_mcp_server, tool

    scores: list[float] = []

    @tool("submit", "Record a score", {"score": float})
    async def submit(arguments: dict[str, Any]) -> dict[str, Any]:
        scores.append(arguments["score"])
        return {"content": [{"type": "text", "text": "recorded"}]}

    file = tmp_path / "work" / "a.txt"
    script = play(
        call("Write", file_path=str(file), content="hello\n"),
        call_mcp("lab", "submit", score=1.5),
        say("all done"),
    )
    *_, last = asyncio.run(
        run_claude(
            tools=["Write"],
            allowed_tools=["mcp__lab__submit"],
            mcp_servers={"lab": create_sdk_mcp_server("lab", "1", [submit])},
        )
    )
    assert (file.read_text(), scores) == ("hello\n", [1.5])
    assert (last.result, last.is_error, last.usage["input_tokens"]) == ("all done", False, 300)
    assert script.requests[2].results[1] == "recorded"
    assert (script.problems, script.left) == ([], 0)


@pytest.mark.soak
def test_claude_gives_structured_output(run_claude: Claude, play: Play) -> None:
    schema = {"type": "object", "properties": {"score": {"type": "number"}}, "required": ["score"]}
    play(call("StructuredOutput", score=0.5))
    *_, last = asyncio.run(run_claude(output_format={"type": "json_schema", "schema": schema}))
    assert last.structured_output == {"score": 0.5}


@pytest.mark.soak
def test_claude_meets_a_rate_limit(run_claude: Claude, play: Play) -> None:
    from claude_agent_sdk import ClaudeSDKError

    script = play(fail(429, retry_after=1))
    with pytest.raises(ClaudeSDKError, match="429"):
        asyncio.run(run_claude())
    assert len(script.requests) == 1
