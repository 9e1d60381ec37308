"""Package managers: those that Ratchet installs itself, and how a person installs the others."""

from __future__ import annotations

import shutil

PYTHON_MANAGERS = frozenset({"uv", "poetry", "pdm", "pipenv", "tox", "nox", "hatch"})
NODE_MANAGERS = frozenset({"pnpm", "yarn", "bun"})
_DEBIAN = {
    "cargo": "cargo",
    "go": "golang-go",
    "gradle": "gradle",
    "java": "default-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "npx": "npm",
}


def python_package(name: str) -> str:
    """What pip is asked for. PDM has an extra with the versions that it was tested with, and needs them."""
    return "pdm[locked]" if name == "pdm" else name


def how_to_install(program: str) -> str:
    """What to do about a program that is missing: the line to type, if it is known."""
    if program in PYTHON_MANAGERS:
        return f"install {program}: python3 -m pip install {program}"
    if program in NODE_MANAGERS:
        return f"install {program}: npm install --global {program}"
    if shutil.which("apt-get") is None:
        return f"install {program}"
    return f"install {program}: apt-get install {_DEBIAN.get(program, program)}"
