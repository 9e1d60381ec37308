"""The command line of an export: `python run_workflow.py --input name=value … [--json]`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import unittest
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.execution import Executed, QuietJournal, StepCall, StepError
from ratchet.flowkit.inputs import given_text, parse_input_texts
from ratchet.flowkit.jsontext import load_json
from ratchet.flowkit.spec import WorkflowSpec, WorkflowStep
from ratchet.flowkit.validation import require_valid

from .caller import Package, read_package
from .tools import NOT_FOUND

_SHOWN = {"held": "blocked"}


@dataclass
class Notes(QuietJournal):
    """Listens to a run for what its records do not keep: why steps were left out, and what to do about failures."""

    reasons: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)

    async def failed(self, call: StepCall, error: StepError) -> None:
        if error.hint:
            self.hints[call.name] = error.hint

    async def skipped(self, name: str, step: WorkflowStep, reason: str, *, wanted: bool) -> None:
        self.reasons[name] = reason


def report_of(spec: WorkflowSpec, ended: Executed, notes: Notes, *, recorded: bool) -> dict[str, Any]:
    """How a run ended, as JSON. One that used recorded answers says that it is simulated."""
    steps = {
        name: {
            "status": _SHOWN.get(record.status, record.status),
            "metrics": dict(record.metrics),
            "error": None if record.status == "skipped" else record.error,
            "reason": notes.reasons.get(name),
            "hint": notes.hints.get(name),
            "cached": record.cached,
            "tries": record.tries,
        }
        for name, record in ended.steps.items()
    }
    return {
        "workflow": spec.workflow_id,
        "status": _SHOWN.get(ended.status, ended.status),
        "simulated": recorded,
        "error": ended.error if ended.status == "failed" else None,
        "outputs": dict(ended.outputs),
        "steps": steps,
    }


_FAILED, _MISUSE, _MISSING, _INTERRUPTED = 1, 2, 3, 130


def main(folder: Path, arguments: Sequence[str] | None = None) -> int:
    """Run the workflow in `folder`.

    0 is completed, 1 failed or waiting for a person, 2 misuse, 3 a program that a step needs and that is not there.
    """
    try:
        return asyncio.run(run_command(folder, arguments))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return _INTERRUPTED


async def run_command(folder: Path, arguments: Sequence[str] | None = None) -> int:
    """The same in an event loop that runs already."""
    try:
        package = read_package(folder)
        asked = _parse(package, arguments)
        inputs = _document(asked.inputs) | parse_input_texts(package.spec, _pairs(asked.input))
        answers = {name: _answer(text) for name, text in _pairs(asked.answer, "--answer").items()}
        caller = package.caller(recorded=asked.recorded, approved=asked.approve, answers=answers)
        notes = Notes()
        ended = await _until_told(package.run(inputs, caller, notes))
    except SpecError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return _MISUSE
    if asked.json:
        print(json.dumps(report_of(package.spec, ended, notes, recorded=caller.recorded), ensure_ascii=False))
    else:
        _show(ended, notes)
    if ended.status == "completed":
        return 0
    codes = [record.metrics.get("exit_code") for record in ended.steps.values() if record.status == "failed"]
    return _MISSING if NOT_FOUND in codes else _FAILED


async def _until_told(work: Coroutine[Any, Any, Executed]) -> Executed:
    """Do the work; a signal to end ends what it has started as well."""
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


def _parse(package: Package, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run_workflow.py", description=package.spec.description or None, allow_abbrev=False
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a value, or @FILE for the text of a file; may be given several times",
    )
    parser.add_argument("--inputs", metavar="FILE", help="values as a JSON object")
    parser.add_argument("--json", action="store_true", help="print how it ended as one JSON document")
    parser.add_argument(
        "--recorded", action="store_true", help="call no model or service: answer from the recorded run"
    )
    parser.add_argument(
        "--approve",
        action="append",
        default=[],
        metavar="STEP",
        help="say yes to a step that waits for a person",
    )
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="STEP=JSON",
        help="answer a step that asks a person for more than yes or no",
    )
    return parser.parse_args(arguments)


def _document(file: str | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        found = load_json(Path(file).read_bytes())
    except OSError as error:
        raise SpecError([f"{file} cannot be read: {error.strerror}"]) from error
    if not isinstance(found, dict):
        raise SpecError([f"{file} is no JSON object"])
    return found


def _answer(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _pairs(given: Sequence[str], option: str = "--input") -> dict[str, str]:
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise SpecError([f"{option} {each} has no value; write NAME=VALUE"])
        found[name.strip()] = given_text(value)
    return found


def _show(ended: Executed, notes: Notes) -> None:
    for name, value in ended.outputs.items():
        print(f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}")
    for name, record in ended.steps.items():
        if record.status in ("failed", "held"):
            hint = f" ({notes.hints[name]})" if name in notes.hints else ""
            print(f"{record.status}: {name}: {record.error}{hint}", file=sys.stderr)


class ExportTest(unittest.TestCase):
    """Whether an export is whole and gives the answer that was recorded. `folder` is where it lies."""

    folder = Path()

    def test_the_workflow_is_whole(self) -> None:
        package = read_package(self.folder)
        require_valid(package.spec)
        for tool in package.spec.tool_definitions.values():
            for name in tool.extra.get("executable", {}).get("files", ()):
                if not (self.folder / "files" / tool.tool_id / name).is_file():
                    self.fail(f"{name} of tool {tool.tool_id} is missing")

    def test_it_gives_the_recorded_answer(self) -> None:
        package = read_package(self.folder)
        if package.recording is None:
            self.skipTest("nothing is recorded; export the workflow with a run")
        ended = asyncio.run(package.run(package.recording.inputs, package.caller(recorded=True)))
        if ended.status != "completed":
            self.fail(f"it is {ended.status}: {ended.error}")
        found = dict(ended.outputs)
        if found != package.recording.outputs:
            self.fail(f"it gave {found!r}, and the recorded run {package.recording.outputs!r}")
