"""Everything that is wrong with a workflow, found without running anything of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.reader import read_leniently, read_spec
from ratchet.flowkit.validation import check_spec
from ratchet.tools.registry import open_toolbox
from ratchet.workflows.building import UnreadableWorkflow, read_data

if TYPE_CHECKING:
    from ratchet.config import Settings
    from ratchet.flowkit.spec import WorkflowSpec
    from ratchet.ledger import Ledger


def check_file(path: Path, ledger: Ledger | None, settings: Settings) -> list[str]:
    """One sentence for each problem of the workflow in a file. Without a ledger nothing is known of tools."""
    try:
        data = read_data(path)
    except UnreadableWorkflow as bad:
        return bad.problems
    folder = path.resolve().parent
    return check_data(data, None if ledger is None else known_tools(ledger, settings, folder))


def check_data(data: Any, tools: Sequence[str] | None) -> list[str]:
    """The same for a workflow as JSON. `tools` are those that can be called, if they are known."""
    try:
        reading = read_leniently(data)
    except SpecError as error:
        return error.problems
    # What could not be read leaves gaps, and a gap may be told of again.
    return list(dict.fromkeys([*reading.problems, *check_spec(reading.spec, known_tools=tools)]))


def require_spec(data: Any) -> WorkflowSpec:
    """The workflow that JSON says. Raises `BadWorkflow` with everything that is wrong with it as it is written."""
    problems = check_data(data, None)
    if problems:
        # Loaded here: it is made of everything that a run is made of.
        from ratchet.workflows.running.preparing import BadWorkflow

        raise BadWorkflow(problems)
    return read_spec(data)


def known_tools(ledger: Ledger, settings: Settings, folder: Path | None = None) -> list[str]:
    """The tools that a workflow can call, with its own ones, which lie in `folder`."""
    folders = () if folder is None else (folder,)
    opened = open_toolbox(ledger, settings, ledger.artifacts.root.parent, folders=folders)
    with contextlib.closing(opened) as toolbox:
        return [version.name for version in toolbox.list()]
