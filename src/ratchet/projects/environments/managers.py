"""Package managers: those that Ratchet installs itself, and how a person installs the others and what they miss."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

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
_UNREACHABLE = re.compile(
    r"could not resolve host|no such host|name resolution|unknown host|ENOTFOUND|EAI_AGAIN|ECONNREFUSED"
    r"|connection refused|network is unreachable|could not transfer artifact|failed to establish a new connection",
    re.IGNORECASE,
)
_MIRRORS = {
    "cargo": "a source in ~/.cargo/config.toml",
    "go": "GOPROXY",
    **dict.fromkeys(("mvn", "mvnw"), "a mirror in .mvn/settings.xml, which .mvn/maven.config names with -s"),
    "uv": "UV_DEFAULT_INDEX",
    **dict.fromkeys(("npm", *NODE_MANAGERS), "npm_config_registry"),
}


def how_to_reach(program: str, said: str) -> str | None:
    """What to do where the output of a manager says that it reached no registry; nothing where it does not."""
    if _UNREACHABLE.search(said) is None:
        return None
    mirror = _MIRRORS.get(program, "PIP_INDEX_URL")
    return f"no registry was reached: set HTTPS_PROXY, or a mirror with {mirror}, and try again"


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


def missing_packages(names: Sequence[str]) -> str | None:
    """What to say about packages of the system that the project's CI installs and this machine lacks."""
    program = shutil.which("dpkg-query")
    if not names or program is None:
        return None
    known = subprocess.run(
        [program, "--show", "--showformat=${Package} ${db:Status-Status}\\n", *names],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.splitlines()
    here = {name for name, _, status in (line.partition(" ") for line in known) if status == "installed"}
    lacking = [name for name in names if name not in here]
    return (
        f"its CI installs what this machine lacks: apt-get install {' '.join(lacking)}" if lacking else None
    )
