"""Opening the tools for a command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.cli.opening import existing_ledger, existing_runtime
from ratchet.kernel import Misuse
from ratchet.tools.registry import open_toolbox
from ratchet.tools.sources import FOLDER_NAME, SUFFIXES

if TYPE_CHECKING:
    from ratchet.cli.session import Session
    from ratchet.ledger import Ledger
    from ratchet.runtime import Runtime
    from ratchet.tools.registry import Toolbox


@contextlib.contextmanager
def existing_toolbox(session: Session, *, folders: Sequence[Path] = ()) -> Iterator[tuple[Ledger, Toolbox]]:
    """The tools of the home that is there and of `folders`, and the ledger that has their versions."""
    loaded = session.load()
    with existing_ledger(session) as ledger:
        opened = open_toolbox(ledger, loaded.settings, loaded.home, folders=folders)
        with contextlib.closing(opened) as toolbox:
            yield ledger, toolbox


@contextlib.contextmanager
def working_toolbox(session: Session, *, folders: Sequence[Path] = ()) -> Iterator[tuple[Runtime, Toolbox]]:
    """The same tools, and the runtime that they are called in."""
    from ratchet.runtime import Kinds

    with existing_runtime(session, Kinds()) as runtime:
        opened = open_toolbox(runtime.ledger, runtime.settings, runtime.home, folders=folders)
        with contextlib.closing(opened) as toolbox:
            yield runtime, toolbox


def located(tool: str) -> tuple[str, tuple[Path, ...]]:
    """The id of a tool, and the folder beside a workflow that it lies in if it is named by its file there.

    Raises `Misuse` for a file that is none of a tool.
    """
    path = Path(tool)
    if path.suffix not in SUFFIXES:
        return tool, ()
    whole = path.resolve()
    folder = next((each for each in whole.parents if each.name == FOLDER_NAME), None)
    if folder is None or not whole.is_file():
        raise Misuse(
            f"{tool} is no file of a folder `{FOLDER_NAME}`",
            hint=f"a workflow's own tools lie in `{FOLDER_NAME}` beside it; `ratchet tool add FILE` takes any other",
        )
    from ratchet.tools.sources import read_tool_file

    return read_tool_file(whole, within=folder).id, (folder,)
