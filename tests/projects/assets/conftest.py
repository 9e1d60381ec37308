"""A small Python repository, and its scripts run as CI would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.projects.assets import write_assets
from ratchet.projects.discovery import discover_files

PASSING = "def test_sums():\n    assert 1 + 1 == 2\n"
FAILING = "def test_sums():\n    assert 1 + 1 == 3, 'one and one'\n"


def run_script(tree: Path, name: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A script of scripts/ci with nothing of this process in its environment but the Python that has the tools."""
    clean = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "VIRTUAL_ENV": sys.prefix,
        "HOME": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return subprocess.run(
        ["bash", f"scripts/ci/{name}.sh", *words],
        cwd=tree,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """One module, one passing test, ruff set up, nothing to install or to build."""
    made = tmp_path / "repository"
    (made / "tests").mkdir(parents=True)
    (made / "sums.py").write_text("TWO = 2\n")
    (made / "tests" / "test_sums.py").write_text(PASSING)
    (made / "ruff.toml").write_text("line-length = 100\n")
    return made


@pytest.fixture
def written(tree: Path) -> Path:
    """The repository with its assets."""
    write_assets(tree, discover_files(tree), provider="github")
    return tree
