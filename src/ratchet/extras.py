"""The parts that are installed only where they are wanted: which are here, and the line that adds one.

The line fits this installation: the environment of `make setup` has no pip, and that of pipx or uv is not to be changed
with another program's. It names packages, since Ratchet itself need not be on any index.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ratchet.kernel import Missing

_DISTRIBUTION = "ratchet-loop"
_OPTIONAL = re.compile(r"""\s*;.*\bextra\s*==\s*["']([\w-]+)["'].*""")
_NAME = re.compile(r"[\w.-]+")

PURPOSES = {
    "amqp": "triggers by the messages of an AMQP broker such as RabbitMQ",
    "chat": "completion and a history in `ratchet chat`",
    "claude": "the engine claude",
    "codex": "the engine codex",
    "codemachine": "importing CodeMachine workspaces",
    "kafka": "triggers by the messages of a Kafka topic",
    "memory": "finding lessons and tools by meaning instead of by shared words",
    "otel": "traces",
    "postgres": "a ledger in PostgreSQL",
    "qdrant": "a memory on a Qdrant server",
    "ray": "placing work on the nodes of a Ray cluster",
    "redis": "triggers by the messages of Redis streams",
    "s3": "artifacts in an S3-compatible store",
}


@dataclass(frozen=True, slots=True)
class Extra:
    """`absent` are the names of its packages that are not installed."""

    name: str
    purpose: str
    packages: tuple[str, ...]
    absent: tuple[str, ...]


def find_extra(name: str) -> Extra:
    packages = _packages(name)
    absent = tuple(each for each in packages if not _is_installed(_name(each)))
    return Extra(name, PURPOSES[name], packages, tuple(map(_name, absent)))


def missing(name: str, what: str) -> Missing:
    """What to raise where an extra is needed and not installed; `what` cannot be done without it."""
    return Missing(f"{what} needs the extra {name!r}, which is not installed", hint=install_line(name))


def install_line(name: str) -> str:
    """What to do to install an extra into the environment that runs this."""
    return f"install it with `{shlex.join(install_command(name))}`"


def install_command(name: str) -> list[str]:
    """The command that installs an extra into the environment that runs this."""
    return [*_installer(), *_packages(name)]


def _installer() -> list[str]:
    prefix, python = Path(sys.prefix), sys.executable
    if (prefix / "pipx_metadata.json").exists() and shutil.which("pipx"):
        return ["pipx", "inject", _DISTRIBUTION]
    if _is_installed("pip"):
        return [python, "-m", "pip", "install"]
    if (uv := find_uv()) is not None:
        return ["uv" if shutil.which("uv") else uv, "pip", "install", "--python", python]
    base = getattr(sys, "_base_executable", None) or "python3"
    return [base, "-m", "pip", "--python", python, "install"]


def find_uv() -> str | None:
    """The uv on PATH, or the one that `make setup` got for itself."""
    own = Path(sys.prefix) / "tools" / "bin" / "uv"
    return shutil.which("uv") or (str(own) if own.exists() else None)


def _packages(extra: str) -> tuple[str, ...]:
    """The requirements of an extra as they are declared, from what the installation says of itself."""
    found = []
    try:
        declared = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # run from its sources
        return (f"{_DISTRIBUTION}[{extra}]",)
    for requirement in declared:
        marked = _OPTIONAL.search(requirement)
        if marked and marked[1] == extra:
            found.append(requirement[: marked.start()].strip())
    return tuple(found)


def _name(requirement: str) -> str:
    found = _NAME.match(requirement)
    return found[0] if found else requirement


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
