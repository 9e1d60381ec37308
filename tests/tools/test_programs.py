"""Executable tools: a program, its arguments and its inputs, without a shell."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from ratchet.tools.caller import call_tool
from ratchet.tools.definition import Tool
from tests.tools.bench import Bench, program
from tests.tools.bench_fixtures import bench, shared_runtime

__all__ = ["bench", "shared_runtime"]

CALCULATOR = """
import json, sys
given = json.load(sys.stdin)
done = {"multiply": lambda a, b: a * b, "add": lambda a, b: a + b}[given["operation"]](given["a"], given["b"])
print(json.dumps({"result": done, "operation": given["operation"]}))
"""
FORMATTER = "import sys\nprint(sys.stdin.read()[::-1])"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "definitions"
    made.mkdir()
    (made / "calculator.py").write_text(CALCULATOR)
    (made / "formatter.py").write_text(FORMATTER)
    return made


def calculator(folder: Path) -> Tool:
    schema = {"type": "object", "properties": {"result": {"type": "number"}}, "required": ["result"]}
    return program("python", "{tool_dir}/calculator.py", folder=folder, output_schema=schema)


def test_a_calculator_multiplies(bench: Bench, folder: Path) -> None:
    called = bench.call(calculator(folder), {"operation": "multiply", "a": 7, "b": 6})
    assert called.value == {"result": 42, "operation": "multiply"}
    assert called.use.exit_code == 0
    assert called.use.peak_bytes


def test_a_single_prompt_is_what_stdin_holds(bench: Bench, folder: Path) -> None:
    called = bench.call(program("python", "{tool_dir}/formatter.py", folder=folder), {"prompt": "stressed"})
    assert called.value["stdout"] == "desserts\n"
    assert called.value["success"] is True
    assert called.value["exit_code"] == 0
    assert called.value["stderr"] == ""
    assert called.value["command"].endswith("formatter.py")


def test_arguments_are_words_and_no_shell_reads_them(bench: Bench) -> None:
    called = bench.call(
        program("printf", "%s|", "{text}", "{number}", "{{plain}}"), {"text": "$(id); a  b", "number": 3}
    )
    assert called.value["stdout"] == "$(id); a  b|3|{plain}|"


def test_an_argument_without_its_input_is_refused(bench: Bench) -> None:
    failed = bench.fails(program("printf", "{absent}"), {"text": "x"})
    assert failed.final
    assert "{absent}" in str(failed)


def test_a_prompt_that_is_not_given_is_all_inputs(bench: Bench) -> None:
    called = bench.call(program("printf", "%s", "{prompt}"), {"a": 1})
    assert json.loads(called.value["stdout"]) == {"a": 1}


def test_a_missing_program_says_how_to_install_it(bench: Bench) -> None:
    failed = bench.fails(program("no-such-program-here", install="apt install it"))
    assert failed.use.exit_code == 127
    assert failed.final
    assert failed.hint == "install it: apt install it"
    assert "no-such-program-here" in str(failed)
    assert failed.result is not None
    assert failed.result["exit_code"] == 127


def test_the_install_command_is_not_run(bench: Bench, tmp_path: Path) -> None:
    bench.fails(program("no-such-program-here", install=f"touch {tmp_path}/installed"))
    assert not (tmp_path / "installed").exists()


def test_another_exit_code_is_a_failure_that_keeps_what_was_printed(bench: Bench) -> None:
    failed = bench.fails(program("sh", "-c", "echo found; echo why >&2; exit 3"))
    assert failed.use.exit_code == 3
    assert not failed.final
    assert "why" in str(failed)
    assert failed.result is not None
    assert (failed.result["success"], failed.result["stdout"]) == (False, "found\n")


def test_a_program_with_children_is_ended_in_time(bench: Bench) -> None:
    tool = program("sh", "-c", "sleep 77 & sleep 77 & wait", timeout=0.5)
    failed = bench.fails(tool)
    assert failed.use.exit_code == 124
    # Measured by the sandbox when the whole tree was gone.
    assert failed.use.wall_ms >= 500
    assert not [each for each in _commands() if each == b"sleep\x0077\x00"]


def test_cancelling_ends_the_tree(bench: Bench) -> None:
    async def cancelled() -> None:
        tool = program("sh", "-c", "sleep 78 & echo begun >&2; wait")
        calling = asyncio.create_task(call_tool(tool, {}, bench.occasion()))
        deadline = time.monotonic() + 240
        while "begun" not in bench.said():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    asyncio.run(cancelled())
    assert not [each for each in _commands() if each == b"sleep\x0078\x00"]


def test_a_program_is_held_to_its_memory(bench: Bench) -> None:
    hungry = "x = []\nwhile True: x.append(bytearray(2**20))"
    failed = bench.fails(program("python", "-c", hungry, constraints={"max_memory_mb": 64}))
    assert "64 MB of memory" in str(failed)


def test_a_flood_ends_a_program(bench: Bench) -> None:
    failed = bench.fails(program("yes", constraints={"max_output_bytes": 10_000}))
    assert "10000 bytes" in str(failed)


def test_a_program_has_no_network_unless_it_declares_it(bench: Bench) -> None:
    # Something that only the machine's own network has.
    source = "import socket; print(len(socket.if_nameindex()))"
    alone = bench.call(program("python", "-c", source)).value["stdout"]
    assert alone == "1\n"
    shared = bench.call(program("python", "-c", source, network=True)).value["stdout"]
    assert int(shared) == len(socket.if_nameindex())


def test_a_program_sees_its_folder_and_a_directory_of_its_own(
    bench: Bench, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("x")
    script = f"ls {{tool_dir}}; pwd; touch here; ls {tmp_path}/secret; touch {{tool_dir}}/mine"
    failed = bench.fails(program("sh", "-c", script, folder=folder))
    assert failed.result is not None
    assert failed.result["stdout"].splitlines() == ["calculator.py", "formatter.py", "/tmp"]
    assert not (folder / "mine").exists()
    assert not Path("/tmp/here").exists()


def test_nothing_of_our_environment_is_passed_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hidden-value")
    said = bench.call(program("env")).value["stdout"]
    assert "hidden-value" not in said
    assert "HOME=/tmp" in said


def test_a_file_of_the_workflow_may_be_an_input(bench: Bench) -> None:
    (bench.folder / "notes.txt").write_text("read me")
    assert (
        bench.call(program("cat", "{source_file}"), {"source_file": "notes.txt"}).value["stdout"] == "read me"
    )


@pytest.mark.parametrize("way", ["absolute", "above", "link"])
def test_a_file_outside_of_the_workflow_is_not_shown(bench: Bench, way: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("secret")
    inner = tmp_path / "workflow"
    inner.mkdir()
    (inner / "link").symlink_to(outside)
    named = {"absolute": str(outside), "above": "../outside", "link": "link"}[way]
    bench.fails(program("cat", "{source_file}"), {"source_file": named}, folder=inner)


def test_a_script_that_has_changed_is_not_run(bench: Bench, folder: Path) -> None:
    tool = calculator(folder)
    (folder / "calculator.py").write_text("print('{\"result\": 1}')")
    failed = bench.fails(tool, {"operation": "add", "a": 1, "b": 1})
    assert failed.final
    assert "calculator.py" in str(failed)


def test_an_answer_that_should_be_json_and_is_not_is_a_failure(bench: Bench) -> None:
    failed = bench.fails(program("echo", "done", output_schema={"type": "object"}))
    assert "'done'" in str(failed)


def test_an_answer_is_held_against_its_schema(bench: Bench) -> None:
    failed = bench.fails(program("echo", '{"a": "x"}', output_schema={"type": "object", "required": ["b"]}))
    assert "'b' is a required property" in str(failed)


def test_python_is_the_one_that_runs_ratchet(bench: Bench) -> None:
    said = bench.call(program("python", "-c", "import sys; print(sys.executable)")).value["stdout"].strip()
    assert os.path.realpath(said) == os.path.realpath(sys.executable)


def _commands() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue
    return found
