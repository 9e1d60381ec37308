"""The layers of the sandbox, and which of them this kernel grants."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

from ratchet.sandbox.inside import names

_START = "import sys; sys.path.insert(0, sys.argv[1]); from inside.trials import main; main()"
_TRIAL_SECONDS = 20.0
# Protects the cache: threads that ask at the same time must not all try.
_lock = threading.Lock()


class Layer(StrEnum):
    """What a record names when it says how a run was isolated."""

    USER = names.USER
    PID = names.PID
    MOUNT = names.MOUNT
    NETWORK = names.NETWORK
    IPC = names.IPC
    UTS = names.UTS
    CAPABILITIES = names.CAPABILITIES
    NO_NEW_PRIVILEGES = names.NO_NEW_PRIVILEGES
    LANDLOCK = names.LANDLOCK
    SECCOMP = names.SECCOMP
    LIMITS = names.LIMITS


# A node can neither fork nor open sockets under its filter, and landlock bounds its files: that holds it by itself.
NODE_FLOOR = frozenset({Layer.NO_NEW_PRIVILEGES, Layer.LIMITS, Layer.LANDLOCK, Layer.SECCOMP})
# Without a pid namespace a command could leave processes behind, without the others it could reach out.
COMMAND_FLOOR = frozenset({Layer.NO_NEW_PRIVILEGES, Layer.LIMITS, Layer.PID, Layer.MOUNT, Layer.NETWORK})


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of trying one layer."""

    layer: str
    granted: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Layers:
    """What this kernel grants. Besides the layers, overlayfs was tried, which is for workspaces."""

    trials: tuple[Trial, ...]
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(trial.layer for trial in self.trials if trial.granted))

    def __contains__(self, layer: object) -> bool:
        return layer in self.names

    def detail(self, layer: str) -> str:
        said = (trial.detail for trial in self.trials if trial.layer == layer)
        return f"{layer}: {next(said, 'not tried')}"


def granted() -> Layers:
    """The layers of this machine, each one really tried, once in the life of this process."""
    with _lock:
        return _granted()


async def try_layers() -> None:
    """Have them tried without holding up the event loop; after the first time there is nothing to do."""
    if not _granted.cache_info().currsize:
        await asyncio.to_thread(granted)


@cache
def _granted() -> Layers:
    if sys.platform != "linux":
        return Layers(tuple(Trial(layer, False, f"{sys.platform} does not have it") for layer in Layer))
    command = [sys.executable, "-I", "-S", "-c", _START, str(Path(__file__).parent)]
    try:
        told = subprocess.run(
            command, capture_output=True, check=True, timeout=_TRIAL_SECONDS, env={}, cwd="/"
        )
        found: dict[str, tuple[bool, str]] = json.loads(told.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return Layers(tuple(Trial(layer, False, f"could not be tried: {error}") for layer in Layer))
    return Layers(tuple(Trial(name, works, said) for name, (works, said) in found.items()))
