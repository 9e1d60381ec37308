"""The wheel, built once, and installed into an environment of its own for each Python that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    [built] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    return Path(built)


@dataclass(frozen=True)
class Installation:
    """Ratchet from its wheel, called where there is no repository, with an empty HOME and nothing else on the PATH."""

    program: Path
    place: Path

    @property
    def env(self) -> dict[str, str]:
        home = self.place / "home"
        home.mkdir(exist_ok=True)
        return {"HOME": str(home), "PATH": os.defpath, "LANG": "C.UTF-8"}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.program), *arguments]
        return subprocess.run(
            command, cwd=self.place, env=self.env, capture_output=True, text=True, timeout=580
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.program), *arguments],
            cwd=self.place,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def install(wheel: Path, python: str, place: Path, extra: str = "") -> Installation:
    """As `pip install ratchet_loop-….whl` does, with the versions that are locked. `extra` is such as `[codex]`."""
    uv = shutil.which("uv") or str(Path(sys.prefix) / "tools" / "bin" / "uv")
    environment = place / "environment"
    subprocess.run([python, "-m", "venv", "--without-pip", str(environment)], check=True)
    installing = [
        uv,
        "pip",
        "install",
        "-q",
        "--compile-bytecode",
        "--python",
        str(environment / "bin" / "python"),
    ]
    subprocess.run([*installing, "-c", str(ROOT / "requirements.lock"), f"{wheel}{extra}"], check=True)
    empty = place / "empty"
    empty.mkdir()
    return Installation(environment / "bin" / "ratchet", empty)


def find_python(version: str) -> str | None:
    """A Python of this version that can be run: on the PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    named = [shutil.which(f"python{version}"), *pyenv.glob(f"{version}.*/bin/python{version}")]
    own = sys.executable if version == "{}.{}".format(*sys.version_info) else None
    for each in filter(None, [own, *named]):
        asked = subprocess.run([str(each), "-c", "import venv, sqlite3"], capture_output=True)
        if asked.returncode == 0:
            return str(each)
    return None
