"""What an engine left in a directory: copied without following any link out of it, and parsed in the sandbox.

And what its checks leave: a section for each, and what of the contract was broken.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import ratchet
from ratchet.agents.contract import STATE, UNTRACKED
from ratchet.judges.judge import Deadline, Report
from ratchet.judges.reports import BadReport, strict_json
from ratchet.judges.scratch import blame, described, ending_text, run_confined
from ratchet.kernel import Outcome, RatchetError
from ratchet.sandbox import Bounds, Finished, Policy


class NotPassed(Exception):
    """A version breaks a rule. The message says which one, where, and what its author should do.

    `details` go into the report.
    """

    def __init__(self, reason: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(reason)
        self.details = dict(details or {})


class BrokenContract(NotPassed):
    """A version does not keep what those who use the one before rely on. Other checks of it still mean something."""


MAX_FILES = 2_000
MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 16
_CHUNK = 1024 * 1024
_GIT = ".git"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FilesSnapshot:
    """The code of a version and its state, as they were. `files` are their paths below `directory`."""

    directory: Path
    files: frozenset[str]
    size: int

    def read(self, name: str) -> bytes:
        return (self.directory / name).read_bytes()


def take_snapshot(source: Path, target: Path) -> FilesSnapshot:
    """Copy `source` to `target`, without what a running agent writes besides its state. Raises `NotPassed`.

    What is not copied may hold no traps either: servers will write there. The inside of `.git` is not looked at.
    """
    taking = _Taking()
    try:
        place = os.open(source, _OPEN | os.O_DIRECTORY)
    except OSError as error:
        raise NotPassed(f"the agent's directory cannot be read: {error.strerror}") from None
    target.mkdir()
    try:
        taking.take(place, "", target)
    finally:
        os.close(place)
    return FilesSnapshot(target, frozenset(taking.files), taking.size)


@dataclass(slots=True)
class _Taking:
    """What was met so far."""

    entries: int = 0
    size: int = 0
    files: list[str] = field(default_factory=list)

    def take(self, place: int, below: str, target: Path | None) -> None:
        """Copy the directory that is open as `place` to `target`; without one, only look at it."""
        if below.count("/") > MAX_DEPTH:
            raise NotPassed(f"{below} lies more than {MAX_DEPTH} directories deep; put the files higher up")
        for name in self._names(place):
            path = below + name
            _check_name(path, name)
            copied = target if name not in UNTRACKED or path == STATE else None
            try:
                self._take_entry(place, name, path, None if copied is None else copied / name)
            except OSError as error:
                raise NotPassed(
                    f"{path} cannot be read: {error.strerror}; let its owner read it, or remove it"
                ) from None

    def _names(self, place: int) -> list[str]:
        names = []
        with os.scandir(place) as found:
            for entry in found:
                self.entries += 1
                if self.entries > MAX_FILES:
                    raise NotPassed(
                        f"there are more than {MAX_FILES} files; remove those that the agent does not need"
                    )
                names.append(entry.name)
        return sorted(names)

    def _take_entry(self, place: int, name: str, path: str, target: Path | None) -> None:
        mode = os.stat(name, dir_fd=place, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if path != _GIT:
                self._take_directory(place, name, path, target)
        elif stat.S_ISREG(mode):
            self._take_file(os.open(name, _OPEN | os.O_NONBLOCK, dir_fd=place), path, target)
        elif stat.S_ISLNK(mode):
            raise NotPassed(
                f"{path} is a link to {os.readlink(name, dir_fd=place)}; put the file itself there"
            )
        else:
            raise NotPassed(f"{path} is neither a file nor a directory; remove it")

    def _take_directory(self, place: int, name: str, path: str, target: Path | None) -> None:
        deeper = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=place)
        try:
            if target is not None:
                target.mkdir()
            self.take(deeper, f"{path}/", target)
        finally:
            os.close(deeper)

    def _take_file(self, descriptor: int, path: str, target: Path | None) -> None:
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise NotPassed(f"{path} is not a plain file; remove it")
            if found.st_mode & (stat.S_ISUID | stat.S_ISGID):
                raise NotPassed(f"{path} has the setuid or setgid bit; take it away with chmod")
            if found.st_nlink > 1:
                raise NotPassed(f"{path} has {found.st_nlink} names (hard links); write a file of its own")
            if target is None:
                return
            with target.open("wb") as copy:
                while chunk := file.read(_CHUNK):
                    self.size += len(chunk)
                    if self.size > MAX_BYTES:
                        raise NotPassed(
                            f"the files have more than {MAX_BYTES} bytes; remove what the agent does not need"
                        )
                    copy.write(chunk)
            target.chmod(0o755 if found.st_mode & stat.S_IXUSR else 0o644)
            self.files.append(path)


def _check_name(path: str, name: str) -> None:
    if not name.isprintable():
        raise NotPassed(f"{path!a} has a name that cannot be printed; rename it")
    if name.casefold() == _GIT and path != _GIT:
        raise NotPassed(f"{path} would be a repository inside the agent's own; remove it")


PACKAGE = Path(ratchet.__file__).resolve().parent
"""What must be readable for an agent to import `ratchet.agentkit`, and for the programs beside this module."""
_PROGRAM = Path(__file__).resolve().with_name("_read_program.py")
BOUNDS = Bounds(wall_seconds=60.0, output_bytes=16 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class Read:
    """The functions that each of the Python files defines, `Class.method` included, with digests of their code, which
    files it uses, what its tests work with (`parts`, with digests), the names in it (`words`), and how they were read.

    `misfit` says why the state does not fit its schema.
    """

    functions: Mapping[str, Mapping[str, str]]
    uses: Mapping[str, Sequence[str]]
    misfit: str | None
    parts: Mapping[str, Mapping[str, str]]
    words: Mapping[str, Sequence[str]]
    finished: Finished


async def read_code(
    directory: Path, files: Sequence[str], *, schema: str, state: str, deadline: Deadline
) -> Read:
    """Parse Python files, and hold a state against its schema. Raises `NotPassed` where the files do not parse."""
    wanted = {"python": sorted(files), "schema": schema, "state": state}
    return await _read(wanted, directory, (directory,), deadline)


async def read_uses(snapshot: FilesSnapshot, deadline: Deadline) -> Read:
    """Parse all Python files, also for which of the others they use. Raises `NotPassed` where they do not parse."""
    among = sorted(snapshot.files)
    wanted = {"python": [name for name in among if name.endswith(".py")], "among": among}
    return await _read(wanted, snapshot.directory, (snapshot.directory,), deadline)


async def read_state(schema: Path, state: Path, deadline: Deadline) -> None:
    """Hold a state against a schema. Raises `NotPassed`."""
    wanted = {"schema": str(schema), "state": state.name}
    read = await _read(wanted, state.parent, (schema.parent, state.parent), deadline)
    if read.misfit is not None:
        raise NotPassed(read.misfit)


async def read_schemas(schemas: Mapping[str, Any], directory: Path, deadline: Deadline) -> None:
    """Raise `NotPassed` unless each of `schemas`, by what it is called, is a JSON Schema."""
    await _read({"schemas": schemas}, directory, (directory,), deadline)


async def _read(wanted: Mapping[str, Any], cwd: Path, readable: tuple[Path, ...], deadline: Deadline) -> Read:
    finished = await run_confined(
        ("{python}", "-I", "-B", str(_PROGRAM)),
        cwd=cwd,
        bounds=BOUNDS,
        policy=Policy(),
        deadline=deadline,
        readable=(*readable, PACKAGE),
        stdin=json.dumps(wanted).encode(),
    )
    if not finished.ok:
        if blame(finished) is Outcome.ERROR:
            raise RatchetError(f"the files could not be read: {ending_text(finished)}")
        raise NotPassed(
            f"the files cannot be read within bounds ({ending_text(finished)}); make them simpler",
            described(finished),
        )
    try:
        found = strict_json(finished.stdout, "what was read")
    except BadReport as error:
        raise RatchetError(str(error)) from None
    if found["problems"]:
        raise NotPassed("; ".join(found["problems"]))
    return Read(found["functions"], found["uses"], found["state"], found["parts"], found["words"], finished)


_NUMBERS = ("seconds", "cpu_ms", "peak_bytes", "tests", "failures", "errors", "skipped", "calls")


class Finding(NamedTuple):
    """What of the contract a change breaks: `kind` is `tests`, `canary`, `state`, …"""

    kind: str
    text: str


@dataclass(slots=True)
class CheckRecord:
    """One section for each check that was begun, in order. `findings` say what of the contract was broken."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @contextmanager
    def check(self, name: str) -> Iterator[dict[str, Any]]:
        """A section to be filled in while the check is made. What ends the check is noted and raised again."""
        section = self.sections[name] = {"outcome": Outcome.ERROR, "reason": None}
        began = time.monotonic()
        try:
            yield section
            section["outcome"] = Outcome.PASSED
        except NotPassed as finding:
            section |= {**finding.details, "outcome": Outcome.FAILED, "reason": str(finding)}
            raise
        except BaseException as error:
            section["reason"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            section["seconds"] = round(time.monotonic() - began, 3)

    @contextmanager
    def contract(self, name: str, kind: str) -> Iterator[dict[str, Any]]:
        """The same for a check by which the contract can be broken: that is a finding, and ends no other check."""
        try:
            with self.check(name) as section:
                yield section
        except BrokenContract as broken:
            self.findings.append(Finding(kind, f"{name}: {broken}"))

    @property
    def last(self) -> str:
        """The check that was begun last."""
        return next(reversed(self.sections), "files")

    @property
    def passed(self) -> list[str]:
        return [name for name, section in self.sections.items() if section.get("outcome") is Outcome.PASSED]

    def numbers(self) -> dict[str, float]:
        """What can be measured of a version."""
        return {
            f"{name}.{key}": section[key]
            for name, section in self.sections.items()
            for key in _NUMBERS
            if isinstance(section.get(key), int | float)
        }

    def evidence(self) -> dict[str, Any]:
        """What a certificate shows: how each check ended, the results of evals and replay, and the states compared."""
        results = self.sections.get("evals", {}).get("results", [])
        replay, state = self.sections.get("replay", {}), self.sections.get("state", {})
        return {
            "checks": {name: section.get("outcome") for name, section in self.sections.items()},
            "evals": [{key: each[key] for key in ("eval", "call", "passed")} for each in results],
            "replay": {key: replay[key] for key in ("calls", "differences", "unstable") if key in replay},
            "state": {
                key: state[key]
                for key in ("lost", "doubled", "replaced", "keys", "values", "bytes")
                if key in state
            },
        }

    def report(self, name: str, **head: Any) -> Report:
        return Report(f"{name}.json", json.dumps({**head, "checks": self.sections}).encode())
