"""What a run may see and touch, the layers that enforce it, its limits, and what became of it."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import sysconfig
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ratchet.kernel import Missing, Misuse, RatchetError, decoded, last_line
from ratchet.programs import TookTooLong, run_program
from ratchet.sandbox.inside import cgroup, names
from ratchet.sandbox.inside.spec import NODE_LOOK_SECONDS, CommandSpec, most_tasks
from ratchet.sandbox.inside.view import PROGRAMS, FileView
from ratchet.sandbox.toolchain import closed_settings, tool_places

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
class LayerTrial:
    """What came of trying one layer."""

    layer: str
    granted: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Layers:
    """What this kernel grants. Besides the layers, overlayfs was tried, which is for workspaces."""

    trials: tuple[LayerTrial, ...]
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
    import asyncio  # slow to import, and reading what a task needs does without it

    if not _granted.cache_info().currsize:
        await asyncio.to_thread(granted)


@cache
def _granted() -> Layers:
    if sys.platform != "linux":
        return Layers(tuple(LayerTrial(layer, False, f"{sys.platform} does not have it") for layer in Layer))
    command = [sys.executable, "-I", "-S", "-c", _START, str(Path(__file__).parent)]
    try:
        tried = run_program(command, seconds=_TRIAL_SECONDS, environment=_bus(), cwd="/")
        if tried.returncode:
            raise ValueError(last_line(decoded(tried.stderr)) or f"it ended with {tried.returncode}")
        found: dict[str, tuple[bool, str]] = json.loads(tried.stdout)
    except (OSError, ValueError, TookTooLong) as error:
        return Layers(tuple(LayerTrial(layer, False, f"could not be tried: {error}") for layer in Layer))
    return Layers(tuple(LayerTrial(name, works, said) for name, (works, said) in found.items()))


def _bus() -> dict[str, str]:
    """The variables by which a program finds the systemd of its user."""
    return {name: os.environ[name] for name in cgroup.BUS if name in os.environ}


def scope() -> list[str]:
    """What helpers of the sandbox are started with to get a cgroup, where only systemd delegates one."""
    return cgroup.scope_argv(os.environ) if names.SCOPE in granted() else []


_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one run may use; `None` is no limit.

    `wall_seconds`, `cpu_seconds`, `memory_bytes` and `processes` hold for the whole tree, `output_bytes` for stdout and
    for stderr each, `file_bytes` for each file that is written, and `disk_bytes` for all that a command writes into its
    writable directories. `shared_memory_bytes` is the size of a command's /dev/shm, as much as its memory if not given.
    `cpus` are the numbers of those it runs on; without any it runs on all. A command's tree is looked at every
    `look_seconds`: more seldom costs less, which counts for what runs long, and lets it pass a bound by more. While its
    memory and its processes stay the same, looks become rarer, until they are `idle_look_seconds` apart.
    """

    wall_seconds: float = 60.0
    cpu_seconds: float | None = None
    memory_bytes: int | None = 1024 * _MIB
    processes: int = 64
    output_bytes: int = _MIB
    file_bytes: int | None = 1024 * _MIB
    disk_bytes: int | None = 32 * 1024 * _MIB
    shared_memory_bytes: int | None = None
    cpus: tuple[int, ...] = ()
    look_seconds: float = 0.025
    idle_look_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "wall_seconds",
            "cpu_seconds",
            "memory_bytes",
            "processes",
            "output_bytes",
            "file_bytes",
            "disk_bytes",
            "shared_memory_bytes",
            "look_seconds",
            "idle_look_seconds",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise Misuse(f"the bound {name} must be above 0 and finite, not {value!r}")


class IsolationRefused(Missing):
    """The machine does not grant the isolation that was asked for, so nothing was run."""


class CannotStart(RatchetError):
    """The work could not be started: no such program, no such directory."""


class Broken(RatchetError):
    """A process of the sandbox itself died, so nothing is known of the run."""


class Stopped(StrEnum):
    """Why the sandbox ended a run."""

    WALL = "wall"
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    OUTPUT = "output"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run ended and what it used.

    `exit_code` or `signal` says how the command itself ended; both are `None` when the sandbox `stopped` it first.
    `cpu_ms` is that of the whole tree, `peak_bytes` the most memory seen at once. `layers` were on; for each bound that
    was set `bounded_by` says what kept it. `problem` says in words why a run is not `ok`.
    """

    exit_code: int | None
    signal: int | None
    stopped: Stopped | None
    stdout: bytes
    stderr: bytes
    wall_ms: float
    cpu_ms: float
    peak_bytes: int
    layers: tuple[str, ...]
    problem: str | None = None
    bounded_by: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.stopped is None and self.problem is None

    @property
    def value(self) -> Any:
        """The JSON that a node returned. Only for one that is `ok`."""
        return json.loads(self.stdout)


@dataclass(frozen=True, slots=True)
class Policy:
    """The rights of one run. Everything not granted here is refused.

    `readable` and `writable` come on top of the system's own programs and libraries and a private, empty /tmp. A path
    in `read_only` lies inside a writable one and is not writable all the same, such as the `.git` of a workspace; one
    in `hidden` appears empty, also where it lies among the programs and libraries. `places` shows what may be read by
    another path than its own; what is also writable can be written there, too. A place below what is hidden is all that
    is seen there. `devices` are device nodes that a command may use beside those that every program needs, such as
    /dev/nvidia0.

    `see_system` is for agent CLIs, which may then also put their own sandbox around what they start: it shows all of
    /etc but what is closed to other users, and the directories on the PATH of its environment with what belongs to the
    programs in them. Of homes, and of all else, it sees only what the policy names.

    `environment` is the whole environment; nothing is inherited. A run is refused unless every layer of `floor` is on;
    `None` stands for `NODE_FLOOR` or `COMMAND_FLOOR`.
    """

    network: bool = False
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    places: Mapping[Path, Path] = field(default_factory=dict)
    devices: tuple[Path, ...] = ()
    see_system: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    floor: frozenset[Layer] | None = None

    def __post_init__(self) -> None:
        placed = (*self.places, *self.places.values())
        for path in (*self.readable, *self.writable, *self.read_only, *self.hidden, *self.devices, *placed):
            if not path.is_absolute() or ".." in path.parts:
                raise Misuse(f"a policy needs absolute paths without '..', not {str(path)!r}")
            if path == Path("/"):
                raise Misuse("a policy cannot name /", hint="name the directories that it needs")
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise Misuse(f"{name!r} cannot be an environment variable")


@dataclass(frozen=True, slots=True)
class Warm:
    """Modules that a parent keeps loaded, for commands that are calls of `entry`, a function of one of them.

    Such a command begins at once and shares the memory of its parent. `entry` is called with argv, once all rights are
    given up, and ends its process as a program would. `prepare` is called in the parent before anything is forked.
    `path` is where Python finds the modules; a policy must show them at the same place.
    """

    entry: str
    prepare: str
    modules: tuple[str, ...]
    path: tuple[str, ...]


_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class Node:
    """`source` is the text of a module, or the path of a file that has it; `function` is called with the input.

    The input is the JSON on stdin: an object becomes keyword arguments unless `spread` is false, anything else the one
    argument. `modules` are imported in the warm parent, before any node starts. `scratch` gives it a private, writable
    directory, in which it starts. `file` is what tracebacks call a source that is a text; if it is an absolute path,
    modules that lie beside it can be imported, as far as the policy shows them.
    """

    source: str | Path
    function: str = "run"
    modules: tuple[str, ...] = ()
    scratch: bool = False
    spread: bool = False
    file: str = ""

    def __post_init__(self) -> None:
        for name in (self.function, *self.modules):
            if not _NAME.fullmatch(name):
                raise Misuse(f"{name!r} is not the name of a function or module")

    @property
    def name(self) -> str:
        """What tracebacks call it."""
        return str(self.source) if isinstance(self.source, Path) else self.file or "<node>"

    def code(self) -> bytes:
        """The source in UTF-8. Raises `Misuse` if it cannot be had."""
        try:
            if isinstance(self.source, str):
                return self.source.encode()
            if self.source.is_symlink():
                # Whoever wrote it chose where it points, and its text would show up in tracebacks.
                raise Misuse(f"the node {self.source} is a symbolic link")
            return self.source.read_bytes()
        except (OSError, UnicodeEncodeError) as error:
            raise Misuse(f"the node {self.name} cannot be read: {error}") from error


def command_layers(policy: Policy) -> tuple[str, ...]:
    """The layers that will be on for a command. Raises `IsolationRefused` if one of the floor is not granted."""
    left_out = frozenset({Layer.NETWORK} if policy.network else ())
    floor = COMMAND_FLOOR if policy.floor is None else policy.floor
    # Another user than root can use a device only if its node is open to all.
    return _layers(left_out, floor, own_user=all(map(_open_to_all, policy.devices)))


def _open_to_all(device: Path) -> bool:
    try:
        return device.stat().st_mode & 0o006 == 0o006
    except OSError:
        return False


def node_layers(policy: Policy, *, scratch: bool) -> tuple[str, ...]:
    """The layers that will be on for a node. Raises `Misuse` for rights that no node has, and `IsolationRefused`."""
    if policy.network or policy.writable or policy.see_system or policy.read_only or policy.devices:
        raise Misuse(
            "a node has no network and no devices, and writes only to its scratch",
            hint="give it readable directories only, or run a command instead",
        )
    floor = NODE_FLOOR if policy.floor is None else policy.floor
    # Landlock can show a directory and its parts, but not the one without the other.
    needs_mounts = scratch or policy.hidden or policy.places
    # Only root can show another user what is root's, and a parent of nodes is not root any more.
    alone = not (policy.readable or policy.places)
    return _layers(frozenset(), floor | {Layer.MOUNT} if needs_mounts else floor, own_user=alone)


def _layers(left_out: frozenset[Layer], floor: frozenset[Layer], *, own_user: bool = True) -> tuple[str, ...]:
    offered = granted()
    missing = floor - left_out - offered.names
    if missing:
        raise IsolationRefused(
            f"the sandbox lacks what this run needs: {'; '.join(map(offered.detail, sorted(missing)))}",
            hint="`ratchet doctor` says how to fix it; a lower `floor` in the policy accepts less isolation",
        )
    on = offered.names - left_out
    layers = tuple(str(layer) for layer in Layer if layer in on)
    # Needs what makes a view of files, and a user namespace in which the other user may do that.
    if own_user and {names.OWN_USER, Layer.USER, Layer.PID, Layer.MOUNT} <= on:
        return (*layers, names.OWN_USER)
    return layers


_KERNEL = "the kernel"
_READER = "Ratchet, as it reads"


def command_bounds(
    bounds: Bounds, layers: Collection[str], *, counted: bool, grouped: Collection[str] = ()
) -> dict[str, str]:
    """What keeps each bound of a command. `counted`: whether the kernel counts the CPU time of the tree; `grouped` are
    the bounds that a cgroup keeps or counts for."""
    looks = f"looks every {bounds.look_seconds * 1000:g} ms"
    shared = ", System V sharing" if Layer.IPC in layers else ""
    scratch = ", files in memory" if Layer.MOUNT in layers else ""
    limits = Layer.LIMITS in layers
    counter = "a counter of the kernel" if counted else "each process"
    in_group = {
        "cpu_seconds": f"{looks} at the count of a cgroup",
        "memory_bytes": f"{_KERNEL}, by a cgroup",
        "processes": f"{looks}, and a cgroup at {most_tasks(bounds.processes)} tasks",
    }
    kept = {
        "wall_seconds": "a clock in the sandbox",
        "cpu_seconds": f"{looks} at {counter}",
        "memory_bytes": f"{looks} at processes, page tables{scratch}{shared}, sockets, and as the kernel's memory"
        " grows at descriptors, mappings and locks",
        "processes": looks,
        "output_bytes": _READER,
        "file_bytes": f"{_KERNEL}, for each file" if limits else "nothing",
        "disk_bytes": f"{looks} at the free space, then at its files",
        "cpus": _KERNEL,
    }
    return _of_those_set(bounds, kept | {name: in_group[name] for name in grouped})


def node_bounds(bounds: Bounds) -> dict[str, str]:
    """What keeps each bound of a node, which is one process. It must have the filter and the limits."""
    kept = {
        "wall_seconds": "a clock in the sandbox",
        "cpu_seconds": _KERNEL,
        "memory_bytes": f"{_KERNEL}, as address space, and again for its scratch; looks every"
        f" {NODE_LOOK_SECONDS * 1000:g} ms at page tables and locks",
        "processes": f"{_KERNEL}: it can start none",
        "output_bytes": _READER,
        "file_bytes": f"{_KERNEL}, for each file",
        "cpus": _KERNEL,
    }
    return _of_those_set(bounds, kept)


def _of_those_set(bounds: Bounds, kept: dict[str, str]) -> dict[str, str]:
    unset = {name for name in kept if getattr(bounds, name) is None} | (set() if bounds.cpus else {"cpus"})
    return {name: by for name, by in kept.items() if name not in unset}


def spec_of(
    argv: Sequence[str], cwd: Path, bounds: Bounds, policy: Policy, warm: Warm | None = None
) -> CommandSpec:
    if not argv:
        raise Misuse("a command needs at least the name of a program")
    if any("\0" in word for word in argv):
        raise Misuse(f"an argument of {argv[0]!r} has a NUL character in it")
    return CommandSpec(
        argv=list(argv),
        cwd=str(cwd.resolve()),
        environment=dict(policy.environment),
        variables=[],
        layers=[*command_layers(policy)],
        view=_view(policy, bounds),
        wall_seconds=bounds.wall_seconds,
        cpu_seconds=bounds.cpu_seconds,
        memory_bytes=bounds.memory_bytes,
        processes=bounds.processes,
        file_bytes=bounds.file_bytes,
        disk_bytes=bounds.disk_bytes,
        cpus=list(bounds.cpus),
        look_seconds=bounds.look_seconds,
        idle_look_seconds=max(bounds.look_seconds, bounds.idle_look_seconds or 0.0),
        entry="" if warm is None else warm.entry,
    )


def _view(policy: Policy, bounds: Bounds) -> FileView:
    roots = {str(path): path.resolve() for path in (*policy.writable, *policy.readable)}
    readable = existing(policy.readable)
    links: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, str], ...] = ()
    if policy.see_system:
        tools = tool_places(policy.environment.get("PATH", ""))
        readable = tuple(dict.fromkeys((*existing(tools), *readable)))
        # By the names that programs and the PATH have for them, too.
        named = (*tools, *policy.readable, *policy.writable)
        links = tuple((str(path), str(path.resolve())) for path in named if path != path.resolve())
        secrets = closed_settings()
    return FileView(
        system=policy.see_system,
        network=policy.network,
        python=python_directories(),
        readable=readable,
        writable=existing(policy.writable),
        read_only=tuple(_below(path, roots, policy.see_system) for path in policy.read_only),
        hidden=(*secrets, *hidden(policy, (*policy.readable, *policy.writable))),
        places=placed(policy.places),
        links=links,
        devices=_device_nodes(policy.devices),
        scratch_bytes=bounds.memory_bytes,
        shared_bytes=bounds.shared_memory_bytes or bounds.memory_bytes,
    )


def _device_nodes(paths: Sequence[Path]) -> tuple[str, ...]:
    """Raises `Misuse` for what is no device, also for a link to one: what is shown must be what was named."""
    for path in paths:
        try:
            mode = path.lstat().st_mode
        except OSError as error:
            raise Misuse(f"the sandbox cannot show the device {path}: {error.strerror}") from None
        if not stat.S_ISCHR(mode):
            raise Misuse(f"the sandbox cannot show {path} as a device: it is no character device")
    return tuple(map(str, paths))


def existing(paths: Sequence[Path]) -> tuple[str, ...]:
    """Their real paths. Raises `Misuse` for one that does not exist."""
    for path in paths:
        if not path.exists():
            raise Misuse(f"the sandbox cannot show {path}: it does not exist")
    return tuple(str(path.resolve()) for path in paths)


def placed(places: Mapping[Path, Path]) -> tuple[tuple[str, str], ...]:
    """Where something is to be seen, and its real path."""
    return tuple(zip(map(str, places), existing(tuple(places.values())), strict=True))


def is_shown(path: Path) -> bool:
    """Whether every run sees what is at `path`, because it lies among the programs and libraries."""
    return bool(_aliases(path))


def hidden(policy: Policy, shown: Sequence[Path | str]) -> tuple[tuple[str, str], ...]:
    """Every path by which the run would see what the policy hides, split as `_below` does it."""
    if not policy.hidden:
        return ()
    roots = {str(path): Path(path).resolve() for path in shown}
    found: list[tuple[str, str]] = []
    for path in policy.hidden:
        by_others = () if policy.see_system else _aliases(path)
        found += by_others
        if not by_others or any(path.is_relative_to(each) for each in roots):
            found.append(_below(path, roots, policy.see_system))
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=64)
def _aliases(path: Path) -> tuple[tuple[str, str], ...]:
    """What `path` is called below each directory that every run sees; two of those may be the same one."""
    real = path.resolve()
    wholes = [
        (each, Path(each).resolve())
        for each in (*PROGRAMS, *python_directories())
        if not Path(each).is_symlink()
    ]
    return tuple(
        (each, str(real.relative_to(whole)))
        for each, whole in wholes
        if real != whole and real.is_relative_to(whole)
    )


def _below(path: Path, roots: dict[str, Path], everything: bool) -> tuple[str, str]:
    """Split `path` into a directory of the policy and the rest, of which no part may be a symbolic link.

    What a run can write, it can replace by a link to elsewhere before the next run is given the same policy.
    """
    for given, real in sorted(roots.items(), key=lambda item: -len(item[0])):
        if path.is_relative_to(given):
            return str(real), str(path.relative_to(given))
    if everything:
        return "/", str(path.resolve()).lstrip("/")
    raise Misuse(f"{path} lies in no directory that the policy shows")


def python_directories() -> tuple[str, ...]:
    """Where the running Python has its program, its library and its packages, by all the names it knows them by."""
    known = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent}
    wanted = known | {path.resolve() for path in known}
    return tuple(sorted(str(path) for path in wanted if not path.is_relative_to("/usr")))


def package_directories() -> list[str]:
    """Where its installed packages are, which a node may import."""
    paths = sysconfig.get_paths()
    return list(dict.fromkeys((paths["purelib"], paths["platlib"])))
