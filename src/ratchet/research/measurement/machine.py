"""What a task needs of the machine and does not bring along: data, a Python with its packages, GPUs, images.

It is looked for before anything is spent, shown to programs where it lies, and held to what it was while it is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ratchet.judges.evaluator import DATA
from ratchet.judges.judge import Deadline
from ratchet.judges.scratch import Changed, in_thread, run_confined
from ratchet.kernel import Missing, Misuse, RatchetError, decoded, last_line
from ratchet.programs import DEVNULL, run_program, start_program
from ratchet.research.adapter import DataSource, Program, TaskAdapter
from ratchet.research.measurement.slots import Lease, SlotPool
from ratchet.sandbox import Bounds, Policy
from ratchet.sandbox.toolchain import program_places

_CHUNK = 4 * 1024 * 1024
_LITTER = "__pycache__"
_PROBE_SECONDS = 120.0


class _Stamp(NamedTuple):
    """One file: its path below the data, its size and its time; where its content counts, also when it was touched."""

    place: str
    size: int
    time_ns: int
    touched_ns: int = 0


@dataclass(frozen=True, slots=True)
class PinnedData:
    """A file or directory that is read where it lies. `stamps` are of when it was pinned.

    In an `environment`, links may lead anywhere, and bytecode comes and goes.
    """

    name: str
    path: Path
    sha256: str
    stamps: tuple[_Stamp, ...]
    by_content: bool = False
    environment: bool = False
    _same: list[tuple[_Stamp, ...]] = field(default_factory=list, compare=False, repr=False)

    def check(self) -> None:
        """Raise `Changed` when it is not what it was."""
        try:
            found = _stamps(self.path, touched=self.by_content, environment=self.environment)
            if found in (self.stamps, *self._same):
                return
            if self.by_content and _content_hash(self.path, found) == self.sha256:
                self._same[:] = [found]
                return
        except (OSError, Misuse) as error:
            raise Changed(f"{self.name} at {self.path} cannot be read as it was: {error}") from None
        raise Changed(f"{self.name} at {self.path} was changed: {_difference(self.stamps, found)}")

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """Raises `Changed` when it is not what it was, before or after, whatever was found out meanwhile."""
        await in_thread(self.check)
        try:
            yield
        except Exception:
            await in_thread(self.check)
            raise
        await in_thread(self.check)


def pin_data(source: DataSource, root: Path, home: Path) -> PinnedData:
    """Raises `Misuse` for data that is absent, or that links lead out of.

    A hash over content is kept in `home` beside the stamps that it belongs to, and worked out again only for others.
    """
    path = _found(source, root)
    try:
        by_content = source.pin == "hash"
        stamps = _stamps(path, touched=by_content)
        sha256 = _known_hash(path, stamps, home) if by_content else _digest(stamps)
    except OSError as error:
        raise Misuse(f"the data {source.name} cannot be read: {error}") from None
    return PinnedData(f"the data {source.name}", path, sha256, stamps, by_content)


def _found(source: DataSource, root: Path) -> Path:
    variable, _, rest = source.path.removeprefix("$").partition("/")
    hint = source.about or None
    if source.path.startswith("$"):
        place = os.environ.get(variable, "")
        if not place:
            raise Misuse(
                f"the data {source.name} is missing: {variable} is not set to where it lies", hint=hint
            )
        path = Path(place, rest)
    else:
        path = Path(source.path).expanduser()
    path = root / path
    if not path.exists():
        raise Misuse(f"the data {source.name} is missing: there is no {path}", hint=hint)
    return path.resolve()


def _stamps(path: Path, *, touched: bool = False, environment: bool = False) -> tuple[_Stamp, ...]:
    files = _files_below(path, environment) if path.is_dir() else [("", path.stat())]
    return tuple(
        sorted(
            _Stamp(place, 0, 0)
            if entry is None
            else _Stamp(place, entry.st_size, entry.st_mtime_ns, entry.st_ctime_ns if touched else 0)
            for place, entry in files
        )
    )


def _files_below(top: Path, environment: bool) -> Iterator[tuple[str, os.stat_result | None]]:
    """Each file with its state, and each link as a text. By strings: an environment has tens of thousands."""
    waiting, start = [str(top)], len(str(top)) + 1
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for each in entries:
                if each.is_symlink():
                    link = Path(each.path)
                    if not environment and not _stays_below(link, top):
                        raise Misuse(
                            f"{link} is a link that leads out of {top}",
                            hint="name the directory that holds both",
                        )
                    yield f"{each.path[start:]} -> {link.readlink()}", None
                elif each.is_dir():
                    if not (environment and each.name == _LITTER):
                        waiting.append(each.path)
                elif each.is_file():
                    yield each.path[start:], each.stat(follow_symlinks=False)
                else:
                    raise Misuse(f"{each.path} is neither a file nor a directory")


def _stays_below(link: Path, top: Path) -> bool:
    return not link.readlink().is_absolute() and link.resolve().is_relative_to(top)


def _digest(stamps: tuple[_Stamp, ...]) -> str:
    return hashlib.sha256(json.dumps(["stamps 1", *stamps]).encode()).hexdigest()


def _content_hash(path: Path, stamps: tuple[_Stamp, ...]) -> str:
    whole = hashlib.sha256()
    for each in stamps:
        whole.update(json.dumps([each.place, each.size]).encode())
        if " -> " not in each.place:
            with (path / each.place if each.place else path).open("rb") as file:
                while chunk := file.read(_CHUNK):
                    whole.update(chunk)
    return whole.hexdigest()


def _known_hash(path: Path, stamps: tuple[_Stamp, ...], home: Path) -> str:
    key = hashlib.sha256(json.dumps([str(path), _digest(stamps)]).encode()).hexdigest()
    record = home / "data" / f"{key}.sha256"
    try:
        known = record.read_text()
    except (OSError, UnicodeDecodeError):
        known = ""
    if len(known) == len(key):
        return known
    found = _content_hash(path, stamps)
    if _stamps(path, touched=True) != stamps:
        raise Misuse(f"{path} was changed while it was read", hint="start again when it is not being written")
    record.parent.mkdir(parents=True, exist_ok=True)
    beside = record.with_suffix(f".{os.getpid()}")
    beside.write_text(found)
    beside.replace(record)
    return found


def _difference(before: tuple[_Stamp, ...], now: tuple[_Stamp, ...]) -> str:
    places = sorted({each.place for each in set(before) ^ set(now)})
    named = ", ".join(place or "the file" for place in places[:3])
    return f"{named}{f' and {len(places) - 3} more' if len(places) > 3 else ''}"


@dataclass(frozen=True, slots=True)
class ForeignPython:
    """A Python of the task's own: its program, and every directory that belongs to it."""

    program: Path
    places: tuple[Path, ...]

    @property
    def shown(self) -> dict[Path, Path]:
        """By the names that its program knows them by, and by their own."""
        return {name: each for each in self.places for name in (each, each.resolve())}


def find_python(given: str) -> ForeignPython:
    """Raises `Misuse` when there is no such program."""
    name, _, rest = given.removeprefix("$").partition("/")
    place = os.path.join(os.environ.get(name, ""), rest) if given.startswith("$") else given  # noqa: PTH118
    if given.startswith("$") and not os.environ.get(name):
        raise Misuse(
            f"{name} is not set to the Python that the task needs",
            hint=f"set {name} to a venv or conda environment, such as ~/venv",
        )
    # Not resolved: a Python finds its virtual environment by the name that it is called by.
    path = Path(place.rstrip("/")).expanduser().absolute()
    if path.is_dir():
        path = path / "bin" / "python"
    if not os.access(path, os.X_OK):
        raise Misuse(f"there is no Python at {path}", hint="name the python of a venv or a conda environment")
    return ForeignPython(path, program_places(path))


@cache
def unpacked_image(image: str, home: Path) -> Path:
    """The files of a container image, unpacked once for each of its versions. Raises `Misuse` where that cannot be."""
    tool = shutil.which("podman") or shutil.which("docker")
    if tool is None:
        raise Misuse(
            f"the image {image} needs podman or docker, and this machine has neither",
            hint="install one of them, or give the task a python instead of an image",
        )
    container = _asked(tool, image, "create", image, "true")
    try:
        version = _asked(tool, image, "inspect", "--format", "{{.Image}}", container)
        place = home / "images" / hashlib.sha256(version.encode()).hexdigest()[:32]
        if not place.is_dir():
            _unpack(tool, image, container, place)
    finally:
        run_program([tool, "rm", container])
    return place


def _unpack(tool: str, image: str, container: str, place: Path) -> None:
    unfinished = place.with_name(f".{place.name}-{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    unpack = ("tar", "-x", "--no-same-owner", "--no-same-permissions", "--exclude=dev/*", "-C", unfinished)
    with (
        start_program([tool, "export", container], complaints=DEVNULL) as exported,
        start_program(unpack, input=exported.stdout) as unpacked,
    ):
        _, complaints = unpacked.communicate()
    if exported.returncode or unpacked.returncode:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise Misuse(f"the image {image} cannot be unpacked: {decoded(complaints).strip()[-300:]}")
    unfinished.rename(place)


def _asked(tool: str, image: str, *words: str) -> str:
    done = run_program([tool, *words])
    if done.returncode:
        said = last_line(decoded(done.stderr)) or "it said nothing"
        raise Misuse(
            f"the image {image} cannot be used: {Path(tool).name} {words[0]}: {said[:300]}",
            hint=f"see that `{Path(tool).name} create {image}` works",
        )
    return last_line(decoded(done.stdout))


# The sandbox has its own.
_NOT_OF_IMAGE = frozenset({"dev", "proc", "sys", "tmp", "run", "data", "inputs"})


def image_places(place: Path) -> dict[Path, Path]:
    """What of an image is seen, by where. Its links at the top are those that the machine has, too."""
    return {
        Path("/", each.name): each
        for each in place.iterdir()
        if each.is_dir() and not each.is_symlink() and each.name not in _NOT_OF_IMAGE
    }


@dataclass(slots=True)
class Machine:
    """What the task's programs are given of this machine. Making one raises `Missing`, which names all that is."""

    task: TaskAdapter
    home: Path
    data: Mapping[str, PinnedData] = field(init=False)
    environments: tuple[PinnedData, ...] = field(init=False)
    _pythons: dict[str, ForeignPython] = field(init=False)
    _images: dict[str, Path] = field(init=False)

    def __post_init__(self) -> None:
        missing: list[Misuse] = []
        self.data, self._pythons, self._images = {}, {}, {}
        for source in self.task.data:
            with _noted(missing):
                self.data = {**self.data, source.name: pin_data(source, self.task.root, self.home)}
        for program in self._programs():
            with _noted(missing):
                if program.image:
                    self._images[program.image] = unpacked_image(program.image, self.home)
                elif program.python:
                    self._pythons[program.python] = find_python(program.python)
        with _noted(missing):
            SlotPool(self.task.slots, self.home / "slots").check()
        if missing:
            hints = dict.fromkeys(each.hint for each in missing if each.hint)
            raise Missing("; ".join(dict.fromkeys(map(str, missing))), hint="; ".join(hints) or None)
        shown = {
            path.resolve() for python in self._pythons.values() for path in python.places if path.is_dir()
        }
        self.environments = tuple(
            PinnedData("the environment", each, "", _stamps(each, environment=True), environment=True)
            for each in sorted(shown)
            if shown.isdisjoint(each.parents)
        )

    def _programs(self) -> list[Program]:
        task = self.task
        return [each for each in (task.trial, task.apply, task.evaluator) if each is not None]

    @property
    def images(self) -> dict[str, str]:
        """Which version of each image it is."""
        return {image: place.name for image, place in self._images.items()}

    @property
    def secrets(self) -> tuple[Path, ...]:
        """Where data lies that no candidate is shown, and so nobody who writes one."""
        return tuple(self.data[each.name].path for each in self.task.data if "trial" not in each.readers)

    def hold_to(self, record: Path) -> None:
        """Write down what the data is when a run begins. Raises `Missing` later when it is that no more."""
        now = {name: each.sha256 for name, each in self.data.items()}
        if now and not record.exists():
            beside = record.with_suffix(".new")
            beside.write_text(json.dumps(now))
            beside.replace(record)
        known = json.loads(record.read_text()) if now else {}
        changed = [f"{name} at {each.path}" for name, each in self.data.items() if known[name] != each.sha256]
        if changed:
            raise Missing(
                f"the data that this run began with is gone: {', '.join(changed)} was changed",
                hint="put it back and resume the run, or start another run for what is there now",
            )

    def pinned(self) -> tuple[PinnedData, ...]:
        """All that must not change while it is used."""
        return (*self.data.values(), *self.environments)

    def python(self, program: Program) -> str:
        """What `{python}` stands for; empty for Ratchet's own."""
        if program.image:
            return program.python or "python3"
        return str(self._pythons[program.python].program) if program.python else ""

    def policy(self, reader: str, program: Program, lease: Lease, hidden: tuple[Path, ...]) -> Policy:
        places = {
            DATA / each.name: self.data[each.name].path for each in self.task.data if reader in each.readers
        }
        given = {"RATCHET_DATA": str(DATA)} if places else {}
        if program.image:
            places |= image_places(self._images[program.image])
        elif program.python:
            places |= self._pythons[program.python].shown
        command = not program.is_node
        return Policy(
            hidden=hidden,
            places=places,
            readable=lease.readable if command else (),
            devices=lease.devices if command else (),
            environment={**self.task.environment, **lease.environment, **given},
        )


class _noted:
    """Collects what is missing, so that all of it can be named at once."""

    def __init__(self, missing: list[Misuse]) -> None:
        self._missing = missing

    def __enter__(self) -> None:
        """Nothing is held."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, Misuse):
            self._missing.append(error)
            return True
        return False


_PROBE = """
import importlib.util, json, os, stat, sys
usual = {"null", "zero", "full", "random", "urandom", "tty"}
devices = []
for top, _, names in os.walk("/dev"):
    for name in names:
        path = os.path.join(top, name)
        if stat.S_ISCHR(os.lstat(path).st_mode) and name not in usual and "/pts" not in path:
            devices.append(path)
for path in sys.argv[1].split(":"):
    if path and path not in devices and os.path.exists(path):
        devices.append(path)
usable = {}
for path in devices:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        usable[path] = ""
    except OSError as error:
        usable[path] = error.strerror
data = {}
if os.path.isdir("/data"):
    for name in sorted(os.listdir("/data")):
        path = os.path.join("/data", name)
        try:
            data[name] = len(os.listdir(path)) if os.path.isdir(path) else os.path.getsize(path)
        except OSError as error:
            data[name] = error.strerror
missing = []
for name in sys.argv[2:]:
    try:
        found = importlib.util.find_spec(name)
    except ImportError:
        found = None
    if found is None:
        missing.append(name)
shm = os.statvfs("/dev/shm")
print(json.dumps({"python": sys.version.split()[0], "program": sys.executable, "devices": usable, "data": data,
                  "missing": missing, "shared_memory_bytes": shm.f_blocks * shm.f_frsize}))
"""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a program sees from inside its sandbox."""

    reader: str
    python: str
    devices: Mapping[str, str]
    data: Mapping[str, int | str]
    missing: tuple[str, ...]
    shared_memory_bytes: int

    def described(self) -> str:
        devices = ", ".join(self.devices) or "no device"
        data = ", ".join(f"/data/{name}" for name in self.data) or "no data"
        return f"the {self.reader} sees Python {self.python}, {devices}, {data}"

    def problems(self) -> list[str]:
        shut = [f"{path} cannot be opened: {why}" for path, why in self.devices.items() if why]
        lost = [
            f"/data/{name} cannot be read: {why}" for name, why in self.data.items() if isinstance(why, str)
        ]
        absent = [f"its Python has no module {name}" for name in self.missing]
        return [f"the {self.reader}: {each}" for each in (*shut, *lost, *absent)]


async def look_inside(machine: Machine, reader: str, program: Program, lease: Lease) -> Sight:
    """Run a probe as the program would be run. Raises `RatchetError` when it does not come back."""
    policy = machine.policy(reader, program, lease, ())
    words = [":".join(map(str, policy.devices)), *program.requires]
    finished = await run_confined(
        ["{python}", "-c", _PROBE, *words],
        words={"python": machine.python(program) or sys.executable},
        cwd=Path("/tmp"),
        bounds=_probe_bounds(program.bounds),
        policy=policy,
        deadline=Deadline(None),
    )
    if not finished.ok:
        said = last_line(decoded(finished.stderr)) or finished
        raise RatchetError(f"the {reader} cannot start its Python in the sandbox: {said}")
    seen: dict[str, Any] = finished.value
    return Sight(
        reader,
        seen["python"],
        seen["devices"],
        seen["data"],
        tuple(seen["missing"]),
        seen["shared_memory_bytes"],
    )


def _probe_bounds(bounds: Bounds) -> Bounds:
    return Bounds(
        wall_seconds=_PROBE_SECONDS,
        memory_bytes=bounds.memory_bytes,
        processes=bounds.processes,
        shared_memory_bytes=bounds.shared_memory_bytes,
    )
