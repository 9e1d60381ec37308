"""What tools do in an export."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ratchet.flowkit.execution import Executed
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import StepType, ToolDefinition, WorkflowSpec, WorkflowStep
from ratchet.flowkit.writer import write_spec
from ratchet.ledger.tools import calls_of_tool, find_tool
from ratchet.runtime import Runtime
from ratchet.tools.definition import folder_of
from ratchet.workflows.export_runner.caller import read_package
from ratchet.workflows.exports import Target, export_workflow
from tests.waiting import eventually
from tests.workflows.exports.machine import Machine
from tests.workflows.exports.specs import one_step, python
from tests.workflows.running.settled import run as run_here


def exported(runtime: Runtime, spec: WorkflowSpec, folder: Path, **more: Any) -> Executed:
    """How a workflow ends that is exported and run by the export's own code, in this process."""
    values = {"value": more.pop("value", 21)}
    approved = more.pop("approved", ())
    asyncio.run(export_workflow(spec, Target.CLOUD, folder, runtime=runtime, **more))
    package = read_package(folder)
    return asyncio.run(package.run(values, package.caller(approved=approved)))


def test_a_function_gets_its_inputs_by_name_and_may_print(runtime: Runtime, tmp_path: Path) -> None:
    tool = python("def run(value):\n    print('noise')\n    return {'twice': 2 * value}\n")
    ended = exported(runtime, one_step(tool, input_mapping={"value": "inputs.value"}), tmp_path / "export")
    assert ended.outputs == {"output": {"twice": 42}}
    assert ended.steps["only"].metrics["exit_code"] == 0


def test_what_a_function_yields_is_done_line_by_line_there_too(runtime: Runtime, tmp_path: Path) -> None:
    rows = python("def run(n):\n    yield from range(0, n, 10)\n")
    spec = one_step(rows, input_mapping={"n": "inputs.value"}, stream=True)
    more = WorkflowStep(
        "half",
        StepType.EXISTING_TOOL,
        tool_name="identity",
        for_each="steps.only.output",
        input_mapping={"value": "item"},
    )
    spec = replace(spec, steps=(*spec.steps, more), outputs=())
    assert exported(runtime, spec, tmp_path / "export").outputs == {"half": [0, 10, 20]}


def test_an_input_that_is_left_out_has_the_default_of_its_schema(runtime: Runtime, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"value": {"type": "number"}, "times": {"type": "integer", "default": 3}},
        "required": ["value", "times"],
    }
    tool = python("def run(value, times):\n    return value * times\n", extra={"input_schema": schema})
    spec = one_step(tool, input_mapping={"value": "inputs.value"})
    assert exported(runtime, spec, tmp_path / "export", value=7).outputs == {"output": 21}


def test_a_script_reads_its_inputs_and_prints_its_answer(runtime: Runtime, tmp_path: Path) -> None:
    source = "import json, sys\nprint(json.load(sys.stdin)['value'] + 1)\n"
    spec = one_step(python(source), input_mapping={"value": "inputs.value"})
    assert exported(runtime, spec, tmp_path / "export").outputs == {"output": 22}


def test_the_tools_that_come_with_ratchet_go_along(runtime: Runtime, tmp_path: Path) -> None:
    spec = one_step(tool_name="identity", input_mapping={"value": "inputs.value"})
    assert exported(runtime, spec, tmp_path / "export").outputs == {"output": 21}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def run():\n    raise ValueError('no luck')\n", "ValueError: no luck"),
        ("import os\nos._exit(0)\n", "ended without an answer"),
        ("def run(:\n", "SyntaxError"),
        ("print('\"' + 'x' * 200_000 + '\"')\n", "wrote more than 100000 bytes"),
    ],
)
def test_a_tool_that_goes_wrong_fails_its_step(
    source: str, why: str, runtime: Runtime, tmp_path: Path
) -> None:
    tool = python(source, extra={"constraints": {"max_output_bytes": 100_000}})
    ended = exported(runtime, one_step(tool), tmp_path / "export")
    assert ended.status == "failed"
    assert why in (ended.steps["only"].error or "")


@pytest.mark.soak
def test_nothing_of_a_tool_outlives_its_time(runtime: Runtime, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    source = (
        "import subprocess, sys, time\n"
        "def run():\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"    open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "    time.sleep(600)\n"
    )
    ended = exported(runtime, one_step(python(source), timeout=4), tmp_path / "export")
    assert "took longer than 4 s" in (ended.steps["only"].error or "")
    assert not _lives(int(mark.read_text()))


@pytest.mark.soak
def test_a_runner_that_is_told_to_end_takes_its_tools_along(runtime: Runtime, machine: Machine) -> None:
    mark = machine.folder.parent / "pid"
    source = (
        "import os, pathlib, time\n"
        "def run():\n"
        f"    new = pathlib.Path({str(mark)!r} + '.new')\n"
        "    new.write_text(str(os.getpid()))\n"
        f"    new.rename({str(mark)!r})\n"
        "    time.sleep(600)\n"
    )
    asyncio.run(export_workflow(one_step(python(source)), Target.CLOUD, machine.folder, runtime=runtime))
    with subprocess.Popen([sys.executable, "-I", str(machine.folder / "run_workflow.py")]) as runner:
        eventually(mark.exists)
        runner.send_signal(signal.SIGTERM)
        assert runner.wait(60) == 130
    assert not _lives(int(mark.read_text()))


def test_a_tool_sees_no_keys(runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-real-key")
    tool = python("import os\ndef run():\n    return sorted(os.environ)\n")
    ended = exported(runtime, one_step(tool), tmp_path / "export")
    assert "OPENAI_API_KEY" not in ended.outputs["output"]
    assert "PATH" in ended.outputs["output"]


def test_schemas_hold(runtime: Runtime, tmp_path: Path) -> None:
    wants_text = {"type": "object", "properties": {"value": {"type": "string"}}}
    gives_text = {"type": "string"}
    tool = python("def run(value):\n    return value\n", extra={"input_schema": wants_text})
    given = {"value": "inputs.value"}
    ended = exported(runtime, one_step(tool, input_mapping=given), tmp_path / "one")
    assert "inputs of tool tool do not fit: value must be of type string" in (ended.error or "")
    tool = python("def run(value):\n    return value\n", extra={"output_schema": gives_text})
    ended = exported(runtime, one_step(tool, input_mapping=given), tmp_path / "two")
    assert "answer of tool tool cannot be used" in (ended.error or "")


def test_a_fallback_tool_goes_along(runtime: Runtime, tmp_path: Path) -> None:
    bad = ToolDefinition("bad", tool_type="python", source_code="raise SystemExit(3)")
    good = ToolDefinition("good", tool_type="python", source_code="def run():\n    return 'good'\n")
    spec = replace(one_step(bad, fallback_tool="good"), tool_definitions={"bad": bad, "good": good})
    assert exported(runtime, spec, tmp_path / "export").outputs == {"output": "good"}


def test_the_script_of_a_program_goes_along(runtime: Runtime, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "triple.py").write_text(
        "import json, sys\nprint(json.dumps({'result': 3 * int(sys.argv[1])}))\n"
    )
    (tools / "triple.yaml").write_text(
        "name: triple\ntype: executable\ndescription: Three times.\n"
        "executable: {command: python, args: ['{tool_dir}/triple.py', '{value}']}\n"
        "output_schema: {type: object}\n"
    )
    spec = one_step(tool_name="triple", input_mapping={"value": "inputs.value"})
    ended = exported(runtime, spec, tmp_path / "export", base=tools)
    assert ended.outputs == {"output": {"result": 63}}
    assert (tmp_path / "export" / "files" / "triple" / "triple.py").is_file()


@pytest.mark.soak
def test_a_program_that_is_not_there_is_exit_code_3_with_the_way_to_install_it(
    runtime: Runtime, machine: Machine
) -> None:
    tool = ToolDefinition(
        "tool",
        tool_type="executable",
        extra={"executable": {"command": "no-such-program", "install_command": "apt install it"}},
    )
    asyncio.run(export_workflow(one_step(tool), Target.CLOUD, machine.folder, runtime=runtime))
    done = machine.run("--json")
    step = done.told["steps"]["only"]
    assert (done.exit_code, step["metrics"], step["hint"]) == (
        3,
        {"exit_code": 127},
        "install it: apt install it",
    )


def test_an_approval_waits_until_it_is_given(runtime: Runtime, tmp_path: Path) -> None:
    spec = one_step(step_type=StepType.APPROVAL, prompt_template="Continue?", tool_name=None)
    waiting = exported(runtime, spec, tmp_path / "export")
    assert (waiting.status, waiting.steps["only"].status) == ("held", "held")
    assert "--approve only" in (waiting.steps["only"].error or "")
    ended = exported(runtime, spec, tmp_path / "export", approved={"only"}, force=True)
    assert ended.outputs["output"]["approved"] is True


@pytest.fixture
def service() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A web service that adds, and what it was asked with."""
    seen: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append((self.path, self.headers.get("authorization", "")))
            answer = json.dumps({"sum": sum(body["numbers"])}).encode()
            self.send_response(200 if "bad" not in self.path else 418)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", seen
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_web_service_is_asked_with_the_key_of_its_variable(
    runtime: Runtime,
    tmp_path: Path,
    service: tuple[str, list[tuple[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, seen = service
    tool = ToolDefinition(
        "tool",
        tool_type="api",
        extra={
            "openapi": {
                "base_url": address,
                "operation": "POST /sums/{kind}",
                "auth": {"type": "bearer", "variable": "SUMS_TOKEN"},
            }
        },
    )
    given = {"kind": "plain", "numbers": [1, 2, 3]}
    monkeypatch.setenv("SUMS_TOKEN", "secret-of-sums")
    ended = exported(runtime, one_step(tool, input_mapping=given), tmp_path / "export")
    assert ended.outputs == {"output": {"sum": 6}}
    assert seen == [("/sums/plain", "Bearer secret-of-sums")]

    monkeypatch.delenv("SUMS_TOKEN")
    ended = exported(runtime, one_step(tool, input_mapping=given), tmp_path / "export", force=True)
    assert "SUMS_TOKEN is not set" in (ended.error or "")


def _lives(pid: int) -> bool:
    """Whether a process still does something; one that nobody has waited for yet does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def twice_as_a_workflow(**declared: Any) -> ToolDefinition:
    """A tool that is a workflow, whose step doubles a number."""
    inside = one_step(
        python("def run(value):\n    return value * 2\n"), input_mapping={"value": "inputs.value"}
    )
    body = {"workflow": {"spec": write_spec(replace(inside, workflow_id="inside"))}}
    return ToolDefinition("twice", tool_type="workflow", extra={**body, **declared})


def test_a_tool_that_is_a_workflow_is_held_to_its_schemas_there_too(runtime: Runtime, tmp_path: Path) -> None:
    few = {"type": "object", "properties": {"output": {"type": "integer", "maximum": 50}}}
    small = {"type": "object", "properties": {"value": {"type": "integer", "maximum": 30}}}
    tool = twice_as_a_workflow(input_schema=small, output_schema=few)
    spec = one_step(tool, input_mapping={"value": "inputs.value"})
    assert exported(runtime, spec, tmp_path / "export").outputs == {"output": {"output": 42}}
    for value, wrong in ((29, "the answer of tool twice cannot be used"), (31, "the inputs of tool twice")):
        ended = exported(runtime, spec, tmp_path / f"export-{value}", value=value)
        assert ended.status == "failed"
        assert wrong in str(ended.steps["only"].error)
        assert ("only/only" in ended.steps) == (value == 29)


@pytest.mark.soak
@pytest.mark.usefixtures("worker")
def test_an_exported_workflow_with_a_workflow_as_a_tool_runs_in_ratchet_as_well(
    runtime: Runtime, tmp_path: Path
) -> None:
    spec = one_step(twice_as_a_workflow(), input_mapping={"value": "inputs.value"})
    exported(runtime, spec, tmp_path / "export")
    carried = read_spec(json.loads((tmp_path / "export" / "workflow.json").read_text()))
    done = run_here(runtime, carried, {"value": 4})
    assert (done["status"], done["outputs"]) == ("completed", {"output": {"output": 8}})
    with runtime.ledger.read() as tx:
        tool = find_tool(tx, "twice", folder=folder_of("single"))
        assert tool is not None
        assert [call.ok for call in calls_of_tool(tx, tool.id)] == [True]
