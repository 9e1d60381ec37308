"""Puts an export where it belongs: built beside its place and then renamed, so that it is there whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ratchet.kernel import Conflict, RatchetError

MARK = "export.json"
"""The file by which an export is known."""


def check_folder(folder: Path, *, force: bool) -> None:
    """Raises `Conflict` when there is something that an export may not take the place of."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise Conflict(f"{folder} is not a folder", hint="name another place")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not force:
        raise Conflict(
            f"{folder} is not empty", hint="name another folder, or replace an export with --force"
        )
    # Whatever else somebody has there is not ours to delete.
    if not (folder / MARK).is_file():
        raise Conflict(f"{folder} is not empty and holds no export", hint="name another folder")


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make `folder` hold exactly these files. An export that is there already is replaced."""
    folder = folder.absolute()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        built = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise RatchetError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        for name, content in files.items():
            file = built / "new" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        if folder.exists():
            folder.rename(built / "old")
        (built / "new").rename(folder)
    except OSError as error:
        if (built / "old").exists() and not folder.exists():
            (built / "old").rename(folder)
        raise RatchetError(f"{folder} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(built, ignore_errors=True)
