"""The agent of the reference page, taken from the page and run for real."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client

import ratchet.agentkit
from tests.agentkit.servers import TOKEN, architect, free_port, program

PAGE = Path(__file__).parents[2] / "docs" / "agentkit.md"
FILE = re.compile(r"^`(\w+\.\w+)`[^\n]*\n(?:[^\n`][^\n]*\n)*\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    for name, content in FILE.findall(PAGE.read_text()):
        (tmp_path / name).write_text(content)
    return tmp_path


def test_the_page_has_every_file_of_an_agent_and_every_public_name(written: Path) -> None:
    assert {path.name for path in written.iterdir()} == {
        "runner.py",
        "tuner.py",
        "state_schema.json",
        "state.json",
        "tests.py",
    }
    page = PAGE.read_text()
    assert [name for name in ratchet.agentkit.__all__ if not re.search(rf"\b{name}\b", page)] == []


@pytest.mark.soak
def test_its_own_tests_pass(written: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests.py"],
        cwd=written,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


@pytest.mark.soak
def test_it_keeps_notes_learns_from_marks_and_calls_the_architect(written: Path) -> None:
    runner_port, tuner_port = free_port(), free_port()

    async def used() -> None:
        async with Client(f"http://127.0.0.1:{runner_port}/mcp") as runner:
            for text in ("Buy milk", "Call the bank", "Milk is bought"):
                await runner.call_tool("add", {"text": text})
            found = await runner.call_tool("find", {"word": "milk"})
            assert found.structured_content == {"result": ["Milk is bought", "Buy milk"]}
            assert (await runner.call_tool("add", {"text": " "})).is_error
        async with Client(f"http://127.0.0.1:{tuner_port}/mcp") as tuner:
            fewer = await tuner.call_tool("rate", {"mark": "too many"})
            assert fewer.structured_content == {"most_results": 5, "remark": None}
            wrong = await tuner.call_tool("rate", {"mark": "wrong", "comment": "no milk"})
            assert wrong.structured_content == {"most_results": 5, "remark": 41}

    with architect() as known:
        port = int(known.url.rpartition(":")[2])
        with (
            program(written, "runner.py", runner_port),
            program(written, "tuner.py", tuner_port, port, RATCHET_AGENT_TOKEN=TOKEN),
        ):
            asyncio.run(used())
    assert known.feedback == [("A search was wrong: no milk", "high")]
    history = ratchet.agentkit.StateStore(written).history()
    assert [change.by for change in history] == ["tuner", "runner", "runner", "runner", None]
