"""Another machine: a Python without any packages, an environment without anything of this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ended:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.stdout)
        return found


@dataclass(frozen=True)
class Machine:
    folder: Path

    def run(self, *arguments: str, program: str = "run_workflow.py", **variables: str) -> Ended:
        """Run a program of the export in `folder`, from another directory and without site-packages."""
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-W", "error", str(self.folder / program), *arguments],
            cwd="/",
            env={"PATH": os.defpath, "NO_PROXY": "127.0.0.1", **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)
