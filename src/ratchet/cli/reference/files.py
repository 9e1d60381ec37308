"""The files that are made of the code, and writing them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path

from ratchet.cli.completing.shapes import FILE as SHAPES
from ratchet.cli.completing.shapes import Shapes, shape_of
from ratchet.cli.program import root
from ratchet.cli.reference.api_page import api_page
from ratchet.cli.reference.commands_page import commands_page
from ratchet.cli.reference.settings_page import settings_page
from ratchet.cli.reference.walking import every_command
from ratchet.config import load_settings
from ratchet.engines.registry import GROUP, engine_names
from ratchet.kernel import Misuse

PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": commands_page,
    "api.md": api_page,
    "configuration.md": settings_page,
}
"""The pages of the reference by their names."""


def shapes_text() -> str:
    """The table that completion works with."""
    program = f"{root.name} "
    commands = {
        each.name.removeprefix(program): shape_of(each.command)
        for each in every_command(root)
        if each.group is None
    }
    installed = {point.name for point in entry_points(group=GROUP)}
    engines = [
        name for name in engine_names(load_settings(env={}, cwd=Path("/")).settings) if name not in installed
    ]
    return json.dumps(Shapes(commands, engines)._asdict(), ensure_ascii=False, indent=1) + "\n"


def write_pages(directory: Path, shapes: Path = SHAPES) -> list[Path]:
    """Write every page into `directory`, and the table of completion to its place. The files that have changed."""
    texts = {directory / name: make for name, make in PAGES.items()} | {shapes: shapes_text}
    changed = []
    for path, make in texts.items():
        text = make()
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
