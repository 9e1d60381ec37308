"""What a server may see, touch and use."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import ratchet
from ratchet.agents.contract import UNTRACKED, Role
from ratchet.agents.servers.launch import Launch
from ratchet.agents.servers.relay.carrying import ADDRESS
from ratchet.config.agent_settings import Agents
from ratchet.sandbox import Bounds, Policy

_MIB = 1024 * 1024
# A server runs until it is no longer wanted, which is for others to say.
_FOREVER_SECONDS = 100 * 365 * 24 * 3600.0
# Servers are many and mostly idle.
_LOOK_SECONDS = 0.2
COMPILED = "__pycache__"
_WRITTEN = frozenset(UNTRACKED) - {".git"}
_PACKAGE = Path(ratchet.__file__).parent


def policy_for(launch: Launch, role: Role, relay: Path | None) -> Policy:
    """A server sees its version, Python and the package of the kit. It writes its state and logs, not its code.

    With the directory of a `relay`, that is its only way to the network.
    """
    return Policy(
        network=relay is None,
        readable=(_PACKAGE,),
        writable=(launch.directory,) if relay is None else (launch.directory, relay),
        read_only=code_of(launch.directory),
        # What lies compiled beside the code, the agent itself could have written.
        hidden=(launch.directory / COMPILED,),
        environment=environment_of(launch, role),
    )


def code_of(directory: Path) -> tuple[Path, ...]:
    """The entries of a version's directory that its servers must not change: all but what a running agent writes.

    A link is none of them: a version has none, so that was made by a running agent.
    """
    return tuple(
        path for path in sorted(directory.iterdir()) if path.name not in _WRITTEN and not path.is_symlink()
    )


def environment_of(launch: Launch, role: Role) -> dict[str, str]:
    """The whole environment of a server. Nothing of ours is in it but what the launch names."""
    return {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin")),
        # The sandbox has one of its own, which is empty.
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "RATCHET_AGENT": launch.agent,
        "RATCHET_AGENT_COMMIT": launch.commit,
        "RATCHET_AGENTS_URL": f"http://{ADDRESS}:{launch.architect_port}",
        **launch.environment,
        "RATCHET_AGENT_ROLE": role,
    }


def bounds_for(settings: Agents) -> Bounds:
    """How much a server may use.

    Memory and processes hold for all that it starts; threads are bounded as well, at eight for each process. A share of
    a processor cannot be enforced without rights over the machine: `cpus` is rounded down to whole processors, at
    least one, and the server stays on as many of them, picked at random.
    """
    return Bounds(
        wall_seconds=_FOREVER_SECONDS,
        memory_bytes=settings.memory_mb * _MIB,
        processes=settings.processes,
        cpus=_processors(settings.cpus),
        look_seconds=_LOOK_SECONDS,
    )


def _processors(wanted: float) -> tuple[int, ...]:
    there = sorted(os.sched_getaffinity(0))
    if wanted == 0 or wanted >= len(there):
        return ()
    return tuple(sorted(random.sample(there, max(1, int(wanted)))))
