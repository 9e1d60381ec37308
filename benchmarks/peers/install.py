"""Makes the environment of a peer, once: `.venv-peers/NAME`, apart from Ratchet's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.peers.peer import Unavailable
from benchmarks.stage import ROOT

_ENVIRONMENTS = ROOT / ".venv-peers"
_INSTALL_SECONDS = 1800.0


def install(name: str, requirements: str) -> Path:
    """The directory of its programs, installed if it is not yet there. Raises `Unavailable`."""
    environment = _ENVIRONMENTS / name
    # Written last: without it, or with another version in it, the environment is made again.
    stamp = environment / "installed"
    if not stamp.exists() or stamp.read_text() != requirements:
        print(f"installing {requirements} into {environment.relative_to(ROOT)}", file=sys.stderr)
        _run([sys.executable, "-m", "venv", "--clear", str(environment)], requirements)
        pip = [
            str(environment / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
        ]
        _run([*pip, *requirements.split()], requirements)
        stamp.write_text(requirements)
    return environment / "bin"


def _run(command: list[str], requirements: str) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{requirements} was not installed: {type(error).__name__}") from error
    if ended.returncode != 0:
        raise Unavailable(f"{requirements} was not installed: {_reason(ended.stderr or ended.stdout)}")


def _reason(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["it said nothing"])[-1]
