"""Starting quickly: help and version import nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.program import SOURCE

HEAVY = (
    "alembic",
    "asyncio",
    "dbos",
    "difflib",
    "fastapi",
    "importlib.metadata",
    "pydantic",
    "rich",
    "sqlalchemy",
    "structlog",
    "subprocess",
)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["queue", "--help"], ["runs"]])
def test_help_and_version_import_nothing_heavy(arguments: list[str]) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from ratchet.cli import run; run({arguments!r}); "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-S", "-c", with_site(script)], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def with_site(script: str) -> str:
    """Without `site`, whose editable installs import things of their own; click is found all the same."""
    import click

    packages = str(click.__file__).removesuffix("/click/__init__.py")
    return f"import sys; sys.path.append({packages!r}); {script}"
