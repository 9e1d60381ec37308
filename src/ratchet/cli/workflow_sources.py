"""The workflow that a command is about: a file, which needs no ledger, or the name of a saved one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.cli.opening import existing_ledger, existing_runtime, has_ledger
from ratchet.kernel import Misuse
from ratchet.runtime import Kinds
from ratchet.workflows.files import read_file
from ratchet.workflows.saved import load_saved, names_file

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.flowkit.spec import WorkflowSpec
    from ratchet.ledger import Ledger


def find_source(session: Session, source: str) -> tuple[WorkflowSpec, Path | None]:
    """The workflow and, if it is in a file, the folder of that."""
    if names_file(source):
        return read_file(existing_file(source)), Path(source).resolve().parent
    with existing_runtime(session, Kinds()) as runtime:
        return load_saved(runtime, source), None


def existing_file(source: str) -> Path:
    """Raises `Misuse` where there is no such file: that is no fault of a workflow."""
    path = Path(source)
    if not path.is_file():
        raise Misuse(f"there is no file {source}", hint="name a JSON or YAML file with a workflow in it")
    return path


@contextlib.contextmanager
def ledger_if_any(session: Session) -> Iterator[Ledger | None]:
    """The ledger where there is one. Looking at a file must not make it."""
    if not has_ledger(session.load()):
        yield None
        return
    with existing_ledger(session) as ledger:
        yield ledger
