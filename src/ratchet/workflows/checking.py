"""Everything that is wrong with a workflow, found without running anything of it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reading import read_leniently, read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.flowkit.validation import check_spec
from ratchet.runtime import Runtime
from ratchet.tools.registry import open_toolbox
from ratchet.workflows.building import UnreadableWorkflow, read_data
from ratchet.workflows.running.preparing import BadWorkflow


def check_file(path: Path, runtime: Runtime | None) -> list[str]:
    """One sentence for each problem of the workflow in a file. Without a runtime nothing is known of tools."""
    try:
        data = read_data(path)
    except UnreadableWorkflow as bad:
        return bad.problems
    return check_data(data, runtime, folder=path.resolve().parent)


def check_data(data: Any, runtime: Runtime | None, *, folder: Path | None = None) -> list[str]:
    """The same for a workflow as JSON. `folder` is where its own tools lie."""
    try:
        reading = read_leniently(data)
    except SpecError as error:
        return error.problems
    tools = None if runtime is None else _known_tools(runtime, folder)
    # What could not be read leaves gaps, and a gap may be told of again.
    return list(dict.fromkeys([*reading.problems, *check_spec(reading.spec, known_tools=tools)]))


def require_spec(data: Any) -> WorkflowSpec:
    """The workflow that JSON says. Raises `BadWorkflow` with everything that is wrong with it as it is written."""
    problems = check_data(data, None)
    if problems:
        raise BadWorkflow(problems)
    return read_spec(data)


def _known_tools(runtime: Runtime, folder: Path | None) -> list[str]:
    folders = () if folder is None else (folder,)
    opened = open_toolbox(runtime.ledger, runtime.settings, runtime.home, folders=folders)
    with contextlib.closing(opened) as toolbox:
        return [version.name for version in toolbox.list()]
