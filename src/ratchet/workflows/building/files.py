"""Reads workflow files, JSON or YAML."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.jsontext import LARGEST, load_json
from ratchet.flowkit.reader import read_spec
from ratchet.flowkit.spec import WorkflowSpec
from ratchet.workflows.building.errors import UnreadableWorkflow
from ratchet.workflows.building.yaml_text import load_yaml

_YAML = (".yaml", ".yml")


def read_file(path: Path | str) -> WorkflowSpec:
    """The workflow of a file: YAML if its name ends so, JSON otherwise. It is read, not yet checked.

    Raises `UnreadableWorkflow` with everything that cannot be read, and the line where the file itself is broken.
    """
    try:
        return read_spec(read_data(path))
    except SpecError as error:
        raise UnreadableWorkflow(str(path), error.problems) from None


def read_data(path: Path | str) -> Any:
    """What a file says, as JSON; whether that is a workflow is not looked at. Raises `UnreadableWorkflow`."""
    path = Path(path)
    try:
        content = _content(path)
        return load_yaml(_decoded(content)) if path.suffix in _YAML else load_json(content)
    except OSError as error:
        raise UnreadableWorkflow(str(path), [error.strerror or str(error)]) from error
    except SpecError as error:
        raise UnreadableWorkflow(str(path), error.problems) from None


def _content(path: Path) -> bytes:
    # Not blocking: opening a pipe that nobody writes to would wait for ever.
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SpecError(["it is not a file"])
        return file.read(LARGEST + 1)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError([f"the document is not UTF-8: {error.reason} at byte {error.start}"]) from None
