"""Opening the tools for a command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ratchet.cli.opening import existing_runtime
from ratchet.cli.session import Session
from ratchet.kernel import Misuse
from ratchet.runtime import Kinds, Runtime
from ratchet.tools.files import read_tool_file
from ratchet.tools.places import FOLDER_NAME, SUFFIXES
from ratchet.tools.registry import Toolbox, open_toolbox


@contextlib.contextmanager
def existing_toolbox(
    session: Session, kinds: Kinds | None = None, *, folders: Sequence[Path] = ()
) -> Iterator[tuple[Runtime, Toolbox]]:
    """The tools of the home that is there and of `folders`, and the runtime that they are called in."""
    with existing_runtime(session, kinds or Kinds()) as runtime:
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
    return read_tool_file(whole, within=folder).id, (folder,)
