"""Python tools: JSON in, JSON out, measured truthfully, and never more than they may."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from ratchet.sandbox import close
from ratchet.tools.call import ToolCallFailed
from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Tool, read_tool
from ratchet.tools.definition_file import ToolError
from ratchet.tools.programs import has_function
from tests.tools.bench import Bench, program, python_tool
from tests.tools.bench_fixtures import bench, shared_runtime

__all__ = ["bench", "shared_runtime"]

MIB = 2**20
DOUBLE = "import json, sys\nd = json.load(sys.stdin)\nprint(json.dumps({'result': d['x'] * 2}))"
FUNCTION = "def run(x):\n    return {'result': x * 2}"
# An interpreter of its own is used for a tool that has the network.
both_ways = pytest.mark.parametrize("more", [{}, {"network": True}], ids=["forked", "alone"])


@both_ways
@pytest.mark.parametrize("source", [DOUBLE, FUNCTION], ids=["script", "function"])
def test_a_node_doubles_a_number(bench: Bench, source: str, more: dict[str, Any]) -> None:
    called = bench.call(python_tool(source, **more), {"x": 21})
    assert called.value == {"result": 42}
    assert called.use.exit_code == 0


def test_a_node_is_given_what_the_original_contract_names(bench: Bench) -> None:
    source = "import json, sys\nd = json.load(sys.stdin)\nprint(json.dumps(sorted(d)))"
    given = {"input": "text", "description": "what", "prompt": "do it"}
    assert bench.call(python_tool(source), given).value == ["description", "input", "prompt"]


@both_ways
@pytest.mark.parametrize("kind", ["script", "function"])
def test_a_node_that_raises_says_what(bench: Bench, kind: str, more: dict[str, Any]) -> None:
    wrong = "raise ValueError('no luck')"
    source = wrong if kind == "script" else f"def run():\n    {wrong}"
    failed = bench.fails(python_tool(source, **more))
    assert "ValueError: no luck" in str(failed)
    assert failed.use.exit_code == 1
    assert not failed.final
    assert wrong in failed.said


@both_ways
def test_a_warning_is_no_failure(bench: Bench, more: dict[str, Any]) -> None:
    source = (
        "import warnings\ndef run():\n    warnings.warn('careful')\n    print('by the way')\n    return 1"
    )
    called = bench.call(python_tool(source, **more))
    assert called.value == 1
    assert "careful" in called.said
    assert "by the way" in called.said


@both_ways
def test_the_last_line_of_a_script_is_its_answer(bench: Bench, more: dict[str, Any]) -> None:
    assert bench.call(
        python_tool("print('reading')\nprint('[1,\\n2]'.replace('\\n', ''))", **more)
    ).value == [1, 2]


def test_an_answer_may_have_many_lines(bench: Bench) -> None:
    assert bench.call(python_tool("print('{\\n  \"a\": 1\\n}')")).value == {"a": 1}


@both_ways
@pytest.mark.parametrize("source", ["", "print('done')", "print('{}')\nprint('done')", "print('NaN')"])
def test_a_script_that_ends_without_json_has_failed(bench: Bench, source: str, more: dict[str, Any]) -> None:
    assert "JSON" in str(bench.fails(python_tool(source, **more)))


@pytest.mark.parametrize(
    ("ending", "code"),
    [("sys.exit(3)", 3), ("sys.exit('bad luck')", 1), ("sys.exit(256)", 1), ("os._exit(4)", 4)],
)
@both_ways
def test_the_exit_code_of_a_script_is_told(
    bench: Bench, ending: str, code: int, more: dict[str, Any]
) -> None:
    failed = bench.fails(python_tool(f"import os, sys\nprint('1')\n{ending}", **more))
    assert failed.use.exit_code == code


def test_leaving_with_success_keeps_the_answer(bench: Bench) -> None:
    assert bench.call(python_tool("import sys\nprint('[1]')\nsys.exit(0)")).value == [1]


@both_ways
def test_ending_well_without_an_answer_is_a_failure(bench: Bench, more: dict[str, Any]) -> None:
    bench.fails(python_tool("import os\ndef run():\n    os._exit(0)", **more))


def test_code_that_is_no_python_names_its_line(bench: Bench) -> None:
    failed = bench.fails(python_tool("def run(x)\n    return x"))
    assert "SyntaxError" in str(failed)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def run(): ...", True),
        ("try:\n    import x\nexcept ImportError:\n    def run(): ...", True),
        ("if True:\n    def run(): ...", True),
        ("class A:\n    def run(self): ...", False),
        ("def other():\n    def run(): ...", False),
        ("print('def run()')", False),
    ],
)
def test_code_is_a_script_unless_it_defines_the_function(source: str, expected: bool) -> None:
    assert has_function(source, "run") is expected


@both_ways
def test_two_hundred_megabytes_are_measured(bench: Bench, more: dict[str, Any]) -> None:
    source = "def run():\n    return len(b'x' * (200 * 2**20))"
    used = bench.call(python_tool(source, **more)).use
    assert used.peak_bytes is not None
    assert used.peak_bytes >= 200 * MIB


@both_ways
def test_half_a_second_of_work_is_measured(bench: Bench, more: dict[str, Any]) -> None:
    source = "import time\ndef run():\n    while time.process_time() < 0.5: pass"
    used = bench.call(python_tool(source, **more)).use
    assert used.cpu_ms is not None
    assert used.cpu_ms >= 400
    assert used.wall_ms >= 400


@both_ways
def test_more_memory_than_it_may_have_ends_a_node(bench: Bench, more: dict[str, Any]) -> None:
    source = "def run():\n    return len(b'x' * (300 * 2**20))"
    failed = bench.fails(python_tool(source, constraints={"max_memory_mb": 100}, **more))
    assert "100 MB of memory" in str(failed)
    assert "max_memory_mb" in (failed.hint or "")


@both_ways
def test_a_node_that_hangs_is_ended_in_time(bench: Bench, more: dict[str, Any]) -> None:
    failed = bench.fails(python_tool("def run():\n    while True: pass", timeout=0.4, **more))
    assert failed.use.exit_code == 124
    assert "within 0.4 s" in str(failed)
    assert failed.use.wall_ms >= 400


def test_the_time_of_the_occasion_bounds_that_of_the_tool(bench: Bench) -> None:
    failed = bench.fails(python_tool("import time\ndef run():\n    time.sleep(60)", timeout=50), seconds=0.3)
    assert "within 0.3 s" in str(failed)


@both_ways
def test_a_flood_ends_a_node(bench: Bench, more: dict[str, Any]) -> None:
    source = "import sys\ndef run():\n    while True: sys.stderr.write('x' * 4096)"
    failed = bench.fails(python_tool(source, constraints={"max_output_bytes": 100_000}, **more))
    assert "100000 bytes" in str(failed)
    assert len(bench.said()) <= 100_000


@both_ways
def test_an_answer_that_is_too_long_is_refused(bench: Bench, more: dict[str, Any]) -> None:
    source = "def run():\n    return 'x' * 200_000"
    assert "100000 bytes" in str(
        bench.fails(python_tool(source, constraints={"max_output_bytes": 100_000}, **more))
    )


def test_a_node_starts_no_process(bench: Bench) -> None:
    failed = bench.fails(python_tool("import os\ndef run():\n    return os.fork()"))
    assert "PermissionError" in str(failed)


def test_no_node_reaches_the_network_by_itself(bench: Bench) -> None:
    source = "import socket\ndef run():\n    socket.create_connection(('127.0.0.1', 9), 1)"
    assert "PermissionError" in str(bench.fails(python_tool(source)))


def test_a_node_with_the_network_has_it(bench: Bench) -> None:
    source = "import socket\ndef run():\n    return socket.socket().connect_ex(('127.0.0.1', 1))"
    # Refused by the machine's own loopback, which has nobody at that port; not by the sandbox.
    assert bench.call(python_tool(source, network=True)).value == 111


def test_a_full_disk_is_an_error_of_the_node(bench: Bench) -> None:
    source = "def run():\n    open('file', 'wb').write(b'x' * (40 * 2**20))"
    failed = bench.fails(python_tool(source, constraints={"max_memory_mb": 32}))
    assert any(word in str(failed) for word in ("No space left", "File too large", "memory"))


def test_a_node_has_a_directory_to_write_in_and_no_other(bench: Bench, tmp_path: Path) -> None:
    source = "def run(path):\n    open('own', 'w').write('x')\n    open(path, 'w').write('x')"
    failed = bench.fails(python_tool(source), {"path": str(tmp_path / "foreign")})
    assert "foreign" in str(failed)
    assert not (tmp_path / "foreign").exists()


@both_ways
def test_what_is_said_is_heard_before_the_end(bench: Bench, more: dict[str, Any]) -> None:
    source = (
        "import sys, time\ndef run():\n    print('begun', file=sys.stderr, flush=True)\n    time.sleep(60)"
    )

    async def cancelled_once_heard() -> None:
        calling = asyncio.create_task(call_tool(python_tool(source, **more), {}, bench.occasion()))
        deadline = time.monotonic() + 240
        while "begun" not in bench.said():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    asyncio.run(cancelled_once_heard())
    assert bench.said() == "begun\n"


@both_ways
def test_what_a_node_yields_is_a_list(bench: Bench, more: dict[str, Any]) -> None:
    source = "def run(n):\n    for each in range(n):\n        yield {'line': f'{each}\\n'}\n"
    given: list[Any] = []
    called = bench.call(python_tool(source, **more), {"n": 3}, give_line=given.append)
    assert called.value == given == [{"line": f"{each}\n"} for each in range(3)]
    assert bench.call(python_tool(source, **more), {"n": 0}).value == []


def test_a_list_that_is_returned_has_no_lines_before_the_end(bench: Bench) -> None:
    given: list[Any] = []
    called = bench.call(python_tool("def run():\n    return ['a', 'b\\nc']\n"), give_line=given.append)
    assert (called.value, given) == (["a", "b\nc"], [])


@both_ways
def test_a_node_that_yields_what_is_not_json_has_failed(bench: Bench, more: dict[str, Any]) -> None:
    source = "def run():\n    yield 1\n    yield {1, 2}\n"
    assert "is not JSON" in str(bench.fails(python_tool(source, **more)))


@both_ways
def test_each_line_is_passed_on_before_the_end(bench: Bench, more: dict[str, Any]) -> None:
    """The node never ends by itself: it is cancelled once both of its lines were heard."""
    source = (
        "import time\ndef run():\n    yield 'one'\n    yield 'two'\n    while True:\n        time.sleep(1)\n"
    )
    assert _cancelled_after(2, python_tool(source, **more), bench) == ["one", "two"]


def _cancelled_after(count: int, tool: Tool, bench: Bench) -> list[Any]:
    """The lines of a call that is cancelled when it has given so many."""
    given: list[Any] = []

    async def call() -> None:
        enough = asyncio.Event()

        def give(line: Any) -> None:
            given.append(line)
            if len(given) == count:
                enough.set()

        calling = asyncio.create_task(call_tool(tool, {}, bench.occasion(give_line=give, seconds=600.0)))
        async with asyncio.timeout(300):
            await enough.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    asyncio.run(call())
    return given


@pytest.mark.soak
@both_ways
def test_what_takes_the_lines_may_have_the_node_wait_and_that_is_not_its_time(
    bench: Bench, more: dict[str, Any]
) -> None:
    """It yields much more than a pipe holds, and its reader pauses for longer than it may take."""
    source = "def run():\n    for each in range(900):\n        yield [each, 'x' * 1_000]\n"
    seconds = 20.0
    given: list[int] = []
    at_the_pause: list[int] = []

    def give(line: Any) -> Awaitable[None] | None:
        given.append(line[0])
        return pause() if line[0] == 0 else None

    async def pause() -> None:
        await asyncio.sleep(seconds + 1)
        at_the_pause.append(len(given))

    called = asyncio.run(
        call_tool(python_tool(source, **more), {}, bench.occasion(give_line=give, seconds=seconds))
    )
    assert given == list(range(900)) == [line[0] for line in called.value]
    # What was read in one piece was passed on, and nothing more.
    assert at_the_pause[0] <= 66


@both_ways
def test_a_node_whose_lines_are_taken_has_its_time_as_any_other(bench: Bench, more: dict[str, Any]) -> None:
    source = "import time\ndef run():\n    yield 1\n    time.sleep(600)\n"
    given: list[Any] = []
    failed = bench.fails(python_tool(source, **more), give_line=given.append, seconds=2.0)
    assert str(failed) == "tool node did not end within 2 s"


def test_the_lines_of_a_program_are_what_it_prints(bench: Bench) -> None:
    talking = program("sh", "-c", "echo one; printf 'tw'; echo o; exec sleep 600")
    assert _cancelled_after(2, talking, bench) == ["one", "two"]


def test_a_program_with_a_schema_answers_with_one_document(bench: Bench) -> None:
    given: list[Any] = []
    tool = program("sh", "-c", "echo '['; echo '1]'", output_schema={"type": "array"})
    assert bench.call(tool, give_line=given.append).value == [1]
    assert given == []


def test_a_listener_that_raises_does_not_break_the_node(bench: Bench) -> None:
    def deaf(kind: str, data: object) -> None:
        raise RuntimeError("not now")

    source = "def run():\n    print('hello')\n    return 1"
    assert bench.call(python_tool(source), listen=deaf).value == 1


def test_a_node_that_is_killed_from_outside_may_be_tried_again(bench: Bench) -> None:
    # It names itself, since there are others that were made in advance; and it is looked for among all processes, since
    # its parent is not below this one any more once the helper that started the parent was killed and replaced.
    name = secrets.token_hex(7)
    source = (
        f"import ctypes, time\ndef run():\n    ctypes.CDLL(None).prctl(15, b'{name}')\n    time.sleep(60)"
    )

    async def killed() -> ToolCallFailed:
        calling = asyncio.create_task(call_tool(python_tool(source), {}, bench.occasion()))
        deadline = time.monotonic() + 240
        while not (victims := _processes_named(name)):
            assert time.monotonic() < deadline
            assert not calling.done()
            await asyncio.sleep(0.05)
        os.kill(victims[0], signal.SIGKILL)
        with pytest.raises(ToolCallFailed) as failed:
            await calling
        return failed.value

    bench.call(python_tool(FUNCTION), {"x": 1})
    bench.call(python_tool(FUNCTION), {"x": 1})
    failed = asyncio.run(killed())
    assert not failed.final
    assert "killed by SIGKILL" in str(failed)
    assert failed.use.exit_code == 137


def test_when_the_sandbox_itself_is_killed_the_node_may_be_tried_again(bench: Bench) -> None:
    source = (
        "import sys, time\ndef run():\n    print('begun', file=sys.stderr, flush=True)\n    time.sleep(60)"
    )

    async def broken() -> ToolCallFailed:
        calling = asyncio.create_task(call_tool(python_tool(source), {}, bench.occasion()))
        deadline = time.monotonic() + 240
        while "begun" not in bench.said():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await asyncio.to_thread(close)
        with pytest.raises(ToolCallFailed) as failed:
            await calling
        return failed.value

    assert not asyncio.run(broken()).final
    assert bench.call(python_tool(FUNCTION), {"x": 4}).value == {"result": 8}


def test_inputs_that_are_not_json_are_refused(bench: Bench) -> None:
    failed = bench.fails(python_tool(FUNCTION), {"x": float("nan")})
    assert failed.final
    assert "not JSON" in str(failed)


def _processes_named(name: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # it has just ended
            if path.read_text().strip() == name:
                found.append(int(path.parent.name))
    return found


LEAK = "import os, sys\ndef run(fail=False):\n    key = os.environ['WEATHER_KEY']\n    print(key, file=sys.stderr)\n"


def test_what_is_given_a_secret_passes_no_line_on_before_it_was_looked_at(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_KEY", "hush-hush-42")
    given: list[Any] = []
    source = "import os\ndef run():\n    yield os.environ['WEATHER_KEY']\n"
    called = bench.call(python_tool(source, secrets=["WEATHER_KEY"]), give_line=given.append)
    assert (called.value, given) == (["${WEATHER_KEY}"], [])


def test_a_secret_that_a_tool_names_is_in_its_environment_and_in_no_record(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = python_tool(LEAK + "    assert not fail, key\n    return [len(key), key]", secrets=["WEATHER_KEY"])
    monkeypatch.setenv("WEATHER_KEY", 'quite "secret" text')
    other = python_tool("def run():\n    return 1", secrets=["OTHER_KEY"])
    assert "no tool may be given the variable OTHER_KEY" in str(bench.fails(other))
    called = bench.call(tool, {})
    assert called.value == [19, "${WEATHER_KEY}"]
    assert called.said == "${WEATHER_KEY}\n"
    failed = bench.fails(tool, {"fail": True})
    assert "secret" not in f"{failed} {failed.said}"


def test_only_what_runs_here_is_given_secrets_by_name() -> None:
    with pytest.raises(ToolError, match="only a python tool or a program is given variables by name"):
        read_tool(
            {"type": "llm", "secrets": ["KEY"], "llm": {"prompt_template": "x"}}, folder=None, id="asks"
        )
    with pytest.raises(ToolError, match="is no name of a variable"):
        python_tool("def run():\n    return 1", secrets=["sk-123"])
