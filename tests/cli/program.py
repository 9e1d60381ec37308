"""The real program, in a process of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.cli import run

SOURCE = Path(__file__).parents[2] / "src"
MODULE = (sys.executable, "-m", "ratchet.cli")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Program:
    """`ratchet` as a person would call it in `directory`, with nothing of ours in the environment."""

    def __init__(self, directory: Path, database_url: str | None = None, plugins: Path | None = None) -> None:
        self.directory = directory
        self.env = {name: text for name, text in os.environ.items() if not name.startswith("RATCHET_")}
        self.env["PYTHONPATH"] = os.pathsep.join(str(path) for path in (plugins, SOURCE) if path)
        self.env["XDG_CACHE_HOME"] = str(directory / "cache")
        if database_url is not None:
            self.env["RATCHET_DATABASE_URL"] = database_url

    @property
    def home(self) -> Path:
        return self.directory / ".ratchet"

    def make_home(self) -> Path:
        """What `ratchet init` makes, quicker: in this process. Returns the file of the ledger."""
        with redirect_stdout(io.StringIO()):
            assert run(["--home", str(self.home), "init"]) == 0
        return self.home / "ledger.db"

    def __call__(self, *arguments: str, seconds: float = 240) -> Ended:
        done = subprocess.run(
            [*MODULE, *arguments],
            cwd=self.directory,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*MODULE, *arguments],
            cwd=self.directory,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
