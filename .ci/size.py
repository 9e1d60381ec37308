"""How large the core is: the packages of requirements.lock, installed into an environment of its own.

`python3 .ci/size.py [LOCK]` prints their number and size and exits with 1 if there are more than promised. Sizes are
those of the files with all their byte code, as pip installs them; uv leaves that to the first import.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

MOST_PACKAGES = 60
MOST_MEGABYTES = 250
ROOT = Path(__file__).parents[1]


def main(lock: str = str(ROOT / "requirements.lock")) -> int:
    with tempfile.TemporaryDirectory() as place:
        venv.create(place, with_pip=False)
        _install(Path(place) / "bin" / "python", lock)
        packages = next(Path(place).glob("lib/python*/site-packages"))
        count = len(list(packages.glob("*.dist-info")))
        files = {path: path.stat() for path in packages.rglob("*") if path.is_file()}
        for name, size in _largest(packages):
            print(f"{size:7.1f} MB  {name}")
    megabytes = sum(file.st_size for file in files.values()) / 1e6
    compiled = sum(file.st_size for path, file in files.items() if path.suffix == ".pyc") / 1e6
    on_disk = sum(file.st_blocks * 512 for file in files.values()) / 1e6
    print(f"{count} packages (at most {MOST_PACKAGES}), {megabytes:.0f} MB (at most {MOST_MEGABYTES}):")
    print(f"{compiled:.0f} MB of it is byte code; in whole blocks it takes {on_disk:.0f} MB on this disk")
    return int(count > MOST_PACKAGES or megabytes > MOST_MEGABYTES)


def _install(python: Path, lock: str) -> None:
    own = ROOT / ".venv" / "tools" / "bin" / "uv"
    uv = str(own) if own.exists() else "uv"
    command = [
        uv,
        "pip",
        "install",
        "-q",
        "--python",
        str(python),
        "--no-deps",
        "--compile-bytecode",
        "-r",
        lock,
    ]
    subprocess.run(command, check=True, env={**os.environ, "UV_SYSTEM_CERTS": "1"})


def _largest(packages: Path) -> list[tuple[str, float]]:
    sizes = {
        each.name: sum(path.stat().st_size for path in each.rglob("*") if path.is_file()) / 1e6
        for each in packages.iterdir()
    }
    return sorted(sizes.items(), key=lambda item: -item[1])[:12]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
