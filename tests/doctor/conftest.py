"""Programs written for one test, on a PATH that has nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Programs:
    directory: Path

    @property
    def path(self) -> str:
        return str(self.directory)

    def add(self, name: str, script: str, interpreter: str = "/bin/sh") -> None:
        file = self.directory / name
        file.write_text(f"#!{interpreter}\nPATH=/usr/bin:/bin\n{script}\n")
        file.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    directory = tmp_path / "bin"
    directory.mkdir()
    return Programs(directory)
