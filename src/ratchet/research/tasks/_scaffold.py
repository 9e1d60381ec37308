"""A new task to begin with: small, complete, and already able to be improved."""

from __future__ import annotations

import secrets
from pathlib import Path

from ratchet.kernel import Conflict, Misuse, RatchetError, is_name
from ratchet.research.tasks.folder import Room, plain_files
from ratchet.workspaces.removal import remove_tree

_TEMPLATE = Path(__file__).parent / "template"
_NAME = b"NAME_OF_THE_TASK"


def scaffold(name: str, directory: Path) -> Path:
    """Make the task `name` as a folder of that name in `directory`. It appears whole or not at all.

    Raises `Misuse` for a bad name and `Conflict` when something of that name is there.
    """
    if not is_name(name):
        raise Misuse(
            f"a task cannot be called {name!r}",
            hint="use small letters, digits, dots, dashes and underscores",
        )
    folder = directory / name
    if folder.exists() or folder.is_symlink():
        raise Conflict(f"{folder} exists already", hint="choose another name, or remove it first")
    unfinished = directory / f".{name}-{secrets.token_hex(4)}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for each in plain_files(_TEMPLATE, Room()):
            target = unfinished / each.place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(each.path.read_bytes().replace(_NAME, name.encode()))
        unfinished.rename(folder)
    except OSError as error:
        raise RatchetError(f"{folder} cannot be written: {error.strerror}") from error
    finally:
        remove_tree(unfinished)
    return folder
