"""What docs/security.md promises, for this machine: what holds each boundary here, and what is not promised here."""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ratchet.config import Loaded
from ratchet.sandbox import COMMAND_FLOOR, NODE_FLOOR, Layer, Layers, granted
from ratchet.sandbox.inside import names

EVERYWHERE = (
    "Not promised anywhere: that a bug in the kernel is stopped, that side channels are closed, and that a reviewer, "
    "which is a model, cannot be fooled. `ratchet doctor --attack` tries the boundary of foreign code."
)
_PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_LOOPBACK = ("127.", "localhost", "::1")
# What a command or an agent program may do where a layer is off.
_WITHOUT = {
    Layer.USER: "no user namespace: sandboxes have the user's own number, and only root can make the others",
    Layer.IPC: "no ipc namespace: System V sharing is refused altogether",
    Layer.UTS: "no uts namespace: the name of the machine is visible",
    Layer.CAPABILITIES: "capabilities cannot be given up",
    Layer.LANDLOCK: "no landlock: the view of files is the only layer; nodes are refused",
    Layer.SECCOMP: "no filter of system calls: commands can take leases and attack the kernel; nodes are refused",
}


@dataclass(frozen=True, slots=True)
class Boundary:
    """One boundary of docs/security.md. `here` is what holds it on this machine, `not_promised` what does not."""

    name: str
    here: tuple[str, ...]
    not_promised: tuple[str, ...] = ()


def boundaries(loaded: Loaded) -> list[Boundary]:
    """All of them, in the order of the page. Nothing is made or changed."""
    offered = granted()
    return [
        _foreign_code(offered),
        _home(loaded.home),
        _judge(offered),
        _keys(loaded.home),
        _server(loaded.settings.server.host),
        _git(),
        _writes(loaded),
        _backups(),
    ]


def _foreign_code(offered: Layers) -> Boundary:
    on = [str(layer) for layer in (*Layer, names.OWN_USER, names.CGROUP, names.SCOPE) if layer in offered]
    here = [f"layers on here: {', '.join(on)}" if on else "no layer is on here"]
    for what, floor in (("nodes", NODE_FLOOR), ("commands", COMMAND_FLOOR)):
        missing = [str(layer) for layer in Layer if layer in floor and layer not in offered]
        here.append(f"{what} are refused for want of {', '.join(missing)}" if missing else f"{what} run")
    return Boundary("Foreign code", tuple(here), tuple(_gaps(offered)))


def _gaps(offered: Layers) -> Iterator[str]:
    yield from (words for layer, words in _WITHOUT.items() if layer not in offered)
    found = re.search(r"ABI (\d+)", offered.detail(Layer.LANDLOCK))
    if Layer.LANDLOCK in offered and found and int(found[1]) < 6:
        yield (
            f"landlock is ABI {found[1]}, below 6: with the network on, as agent programs have it, abstract sockets of "
            "the machine can be connected to"
        )
    if os.geteuid() == 0 and names.OWN_USER in offered:
        yield (
            "Ratchet runs as root: nodes that are shown files, and commands on a file system that cannot be mounted "
            "for another user, keep root's ownership, without any capability"
        )
    elif os.geteuid() == 0:
        yield "Ratchet runs as root: sandboxes keep root's ownership of files, without any capability"
    grouped = names.CGROUP in offered or names.SCOPE in offered
    if not grouped:
        yield "no cgroup is delegated: the memory and processes of a whole tree are looked at every 25 ms, not limited"
    yield "what is written to disk in all has no limit of the kernel: it is looked at every 25 ms"
    if not grouped and not _counts_cpu():
        yield "CPU time of processes that end between two looks is not counted: this user may not count it"


def _counts_cpu() -> bool:
    try:
        return os.geteuid() == 0 or int(_PARANOID.read_text()) <= 2
    except (OSError, ValueError):
        return False


def _home(home: Path) -> Boundary:
    """Whether other users of the machine are kept out."""
    if not home.exists():
        return Boundary("The home", (f"there is none yet at {home}; it is made with mode 0700",))
    mode = stat.S_IMODE(home.stat().st_mode)
    if mode & 0o077:
        words = f"{home} has mode {mode:04o}: other users can enter it until the next command closes it"
        return Boundary("The home", (), (words,))
    return Boundary("The home", (f"{home} has mode {mode:04o}: closed to other users, but not to root",))


def _judge(offered: Layers) -> Boundary:
    held = [str(layer) for layer in (Layer.MOUNT, Layer.LANDLOCK) if layer in offered]
    if not held:
        return Boundary("The judge", ("pinned by its hash",), ("its files are not hidden from candidates",))
    return Boundary("The judge", (f"pinned by its hash, and out of reach by {' and '.join(held)}",))


def _keys(home: Path) -> Boundary:
    file = home / "secret.key"
    if not file.exists():
        return Boundary(
            "Keys", ("there is no secret.key: no project has a secret, or the key is configured",)
        )
    mode = stat.S_IMODE(file.stat().st_mode)
    words = f"secret.key has mode {mode:04o}"
    return (
        Boundary("Keys", (), (f"{words}: others can read it",))
        if mode & 0o077
        else Boundary("Keys", (words,))
    )


def _server(host: str) -> Boundary:
    if host.startswith(_LOOPBACK):
        return Boundary("The server", (f"it listens on {host}: only users of this machine reach it",))
    words = f"it listens on {host}: all who reach it see /metrics, and nothing encrypts what is sent"
    return Boundary("The server", ("the token is asked for",), (words,))


def _git() -> Boundary:
    program = shutil.which("git")
    if program is None:
        return Boundary("Git", (), ("there is no git on the PATH",))
    return Boundary("Git", (f"{program}, with no hook, alias or program of a repository",))


def _writes(loaded: Loaded) -> Boundary:
    database = "SQLite on this machine" if loaded.settings.database_url.path else "PostgreSQL"
    return Boundary("Writes", (f"a worker that was given up is refused by its lease, in {database}",))


def _backups() -> Boundary:
    words = "every path, size, hash and row is checked before anything changes; keys are in one only with `--with-keys`"
    return Boundary("Backups", (words,), ("they are not encrypted",))
