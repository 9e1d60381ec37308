"""The files that are made of the code, and writing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ratchet.cli.reference.api_page import api_page
from ratchet.cli.reference.commands_page import commands_page
from ratchet.cli.reference.settings_page import settings_page
from ratchet.kernel import Misuse

PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": commands_page,
    "api.md": api_page,
    "configuration.md": settings_page,
}
"""The pages of the reference by their names."""


def write_pages(directory: Path) -> list[Path]:
    """Write every page into `directory`. The files that have changed."""
    changed = []
    for name, make in PAGES.items():
        path, text = directory / name, make()
        if not path.exists() or path.read_text() != text:
            write_page(path, text)
            changed.append(path)
    return changed


def write_page(path: Path, text: str) -> None:
    """Write one, and the directories that it lies in. Raises `Misuse`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise Misuse(
            f"{path} cannot be written: {error.strerror or error}", hint="name another place with --out"
        ) from error
