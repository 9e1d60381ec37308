"""The README's commands work as they are written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def commands() -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


@pytest.mark.slow
def test_the_commands_of_the_readme_run_one_after_the_other(tmp_path: Path) -> None:
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    assert len(commands()) > 5
    for command in commands():
        done = subprocess.run(
            shlex.split(command), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "ledger.tar.gz").exists()


def test_every_command_of_the_program_is_in_the_changelog() -> None:
    from ratchet.cli.catalogue import CATALOGUE

    said = (README.parent / "CHANGELOG.md").read_text()
    assert [name for name in CATALOGUE if not re.search(rf"\b{name}\b", said)] == []
