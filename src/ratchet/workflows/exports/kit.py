"""The code that every export carries: `flowkit` as it is, the runner, and what it shares with the tools."""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

# Where the runner finds in an export what lies elsewhere in Ratchet.
_ELSEWHERE = {
    "from ratchet.flowkit.": "from flowkit.",
    "from ratchet.tools.inside import python_tool": "from . import python_tool",
    "from ratchet.tools.openapi import": "from .openapi import",
    "from ratchet.tools.call import ToolFailed": "from .failing import ToolFailed",
}
_SHARED = {
    "python_tool.py": ("ratchet.tools.inside", "python_tool.py"),
    "openapi.py": ("ratchet.tools", "openapi.py"),
}


@cache
def kit_files() -> dict[str, bytes]:
    """Every file of the kit by its path in an export."""
    runner = _sources("ratchet.workflows.exports.runner")
    for name, (package, file) in _SHARED.items():
        runner[name] = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    files = {f"flowkit/{name}": text for name, text in _sources("ratchet.flowkit").items()}
    files |= {f"runner/{name}": _moved(text) for name, text in runner.items()}
    return {name: text.encode() for name, text in files.items()}


def _moved(text: str) -> str:
    for here, there in _ELSEWHERE.items():
        text = text.replace(here, there)
    return text


def _sources(package: str) -> dict[str, str]:
    return dict(sorted(_below(resources.files(package), "")))


def _below(folder: Traversable, prefix: str) -> list[tuple[str, str]]:
    found = []
    for each in folder.iterdir():
        if each.is_dir() and each.name != "__pycache__":
            found += _below(each, f"{prefix}{each.name}/")
        elif each.name.endswith((".py", ".json")):
            found.append((f"{prefix}{each.name}", each.read_text(encoding="utf-8")))
    return found
