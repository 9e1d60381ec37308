"""What a run of a workflow has come to."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ratchet.cli.output import note, print_document
from ratchet.cli.words import lines, one_line


def tell_outcome(found: Mapping[str, Any]) -> None:
    """What a run has come to: its outputs to stdout, all else to stderr."""
    run_id, status = found["run_id"], found["status"]
    if "steps" not in found:
        note(f"Run {run_id} ({found['workflow']}) is {status}." + _because(found["reason"]))
        print_document(found["result"])
        return
    _print_outputs(found["outputs"], whole=status == "completed")
    for name, step in found["steps"].items():
        if step["error"]:
            note(
                f"{'error: ' if step['status'] == 'failed' else ''}step {one_line(name)}: {lines(step['error'])}"
            )
            if step["hint"]:
                note(f"hint: {lines(step['hint'])}")
    if found["error"] and not any(step["error"] for step in found["steps"].values()):
        note(f"error: {lines(found['error'])}")
    note(f"Run {run_id} of {one_line(found['workflow'])} is {status}: {_counted(found['steps'])}.")
    if found["simulated"]:
        note("This is a simulation: recorded answers are allowed in it.")
    _tell_next(found)


def _tell_next(found: Mapping[str, Any]) -> None:
    run_id = found["run_id"]
    match found["status"]:
        case "blocked" if not (found["reason"] or "").startswith("waits for"):
            note(
                f"Fix that; then `ratchet runs resume {run_id}` hands it to a worker, and "
                f"`ratchet runs cancel {run_id}` ends it."
            )
        case "blocked":
            note("`ratchet approval list` shows what is asked; an answer lets it go on.")
        case "failed" | "cancelled":
            note("What was done is kept: run it again, and only the rest is done.")
            note(f"`ratchet workflow show {run_id} --json` has every step.")
        case "completed":
            pass
        case _:
            note(f"`ratchet events --run {run_id} --follow` tells what happens.")


def _because(reason: str | None) -> str:
    return f" {one_line(reason)}." if reason else ""


def _print_outputs(outputs: Mapping[str, Any], *, whole: bool) -> None:
    """The one text of a whole run is printed as it is; anything else as JSON."""
    values = list(outputs.values())
    if whole and len(values) == 1 and isinstance(values[0], str):
        # A terminal would obey what a step has written; a program that reads it wants it as it is.
        print(lines(values[0]) if sys.stdout.isatty() else values[0])
    elif outputs:
        print_document(outputs)


def _counted(steps: Mapping[str, Mapping[str, Any]]) -> str:
    counts = Counter(step["status"] for step in steps.values())
    cached = sum(bool(step["cached"]) for step in steps.values())
    told = [f"{number} {status}" for status, number in counts.items()]
    if cached:
        told.append(f"{cached} of them known from before")
    return f"{len(steps)} {'step' if len(steps) == 1 else 'steps'}" + (f", {', '.join(told)}" if told else "")
