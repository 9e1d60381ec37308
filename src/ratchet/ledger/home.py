"""The home beside ledger and artifacts: the repositories, versions and keys that rows rely on.

A backup holds them as they were at the moment of its rows. Refs are read while no row can be committed; objects never
change and no ref is moved before they are on disk, so they are copied afterwards, while others work.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import sqlalchemy as sa

from ratchet.kernel import LedgerUnavailable, decoded, sendable
from ratchet.ledger.tables import (
    agent_secrets,
    agent_versions,
    agents,
    project_secrets,
    projects,
    protocol_steps,
    protocols,
    research,
    trials,
)
from ratchet.programs import TookTooLong, run_program

DIRECTORIES = ("agents", "chat", "evolution", "projects", "research", "tools")
CONFIGURATION = "ratchet.toml"
FILES = (CONFIGURATION, "memory.db")
KEY = "secret.key"
KEYS = (KEY, "certificate.key", "token")
BEST = "refs/heads/best"

_REPOSITORIES = ("agents/*/repo.git", "evolution/*/repo.git", "research/*/repo.git", "projects/*/*")
# What lies beside the clone of a project: it is made again when it is needed.
_BESIDE_CLONES = ("under-way", "worktrees")
_DATABASE = ".db"
_BESIDE_DATABASE = (".db-wal", ".db-shm", ".db-journal")
_HEADS = ("HEAD", "packed-refs")
_TEMPORARY = ("tmp_obj_", "tmp_pack_", "tmp_idx_")
_MEMORY_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
# As many as Linux follows in one path.
_MOST_LINKS = 40
# More than a repository is packed while it is copied.
_SCANS = 10


# A file that was changed within so much of being read may be changed again without showing it.
_FRESH_NS = 2_000_000_000

KeepFile = Callable[[str, int, int, str], bool]
"""Asked with the path, mode, size and stamp of a file: whether it is kept already and need not be read."""


class HomeFile(NamedTuple):
    """A file of the home, to be read from its beginning. It is unchanged as long as it has this stamp and size."""

    path: str
    mode: int
    content: BinaryIO
    size: int
    stamp: str


@dataclass(slots=True)
class HomeFiles:
    """What of a home goes into a backup, as it was when its refs were read."""

    home: Path
    keys: bool
    directories: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    _refs: dict[str, bytes] = field(default_factory=dict)
    _repositories: list[str] = field(default_factory=list)

    def read_refs(self) -> None:
        """Remember where every ref is. To be called while no row can be committed."""
        for repository in git_directories(self.home):
            self._repositories.append(_relative(repository, self.home))
            loose = [
                Path(directory) / name
                for directory, _, names in os.walk(repository / "refs")
                for name in names
                if not name.endswith(".lock")
            ]
            # Loose ones first: what is packed meanwhile is in both, and the other way round it would be in none.
            for path in (*loose, *(repository / name for name in _HEADS)):
                content = _read(path)
                if content is not None:
                    self._refs[_relative(path, self.home)] = content

    def files(self, kept: KeepFile = lambda *_: False) -> Iterator[HomeFile]:
        """Every file that is not kept, ready to be read; directories, links and what is left out are known then."""
        for path, content in self._refs.items():
            yield from self._remembered(path, content)
        single = [*FILES, *(KEYS if self.keys else ())]
        yield from self._opened((name for name in single if (self.home / name).is_file()), kept)
        for top in DIRECTORIES:
            yield from self._opened(self._walk(top), kept)
        seen: set[str] = set()
        for repository in self._repositories:
            for _ in range(_SCANS):
                new = [path for path in self._objects(repository) if path not in seen]
                if not new:
                    break
                seen.update(new)
                yield from self._opened(new, kept)
        for path in straying(self.links):
            del self.links[path]
            self.left_out.append(path)

    def _walk(self, top: str) -> Iterator[str]:
        """The files below a directory, without refs and objects."""
        for directory, below, names in os.walk(self.home / top):
            here = _relative(Path(directory), self.home)
            below[:] = sorted(name for name in below if self._is_kept(f"{here}/{name}"))
            for name in below:
                if (Path(directory) / name).is_symlink():
                    self._link(f"{here}/{name}")
                else:
                    self.directories.append(f"{here}/{name}")
            below[:] = [name for name in below if not (Path(directory) / name).is_symlink()]
            if here in self._repositories:
                below[:] = [name for name in below if name not in ("refs", "objects")]
                names = [name for name in names if name not in _HEADS and not name.endswith(".lock")]
            for name in sorted(names):
                path = f"{here}/{name}"
                if not self._is_kept(path):
                    continue
                if (Path(directory) / name).is_symlink():
                    self._link(path)
                elif (Path(directory) / name).is_file():
                    yield path

    def _objects(self, repository: str) -> Iterator[str]:
        for directory, below, names in os.walk(self.home / repository / "objects"):
            below.sort()
            here = _relative(Path(directory), self.home)
            # Of a pack the index comes last: without it, it is not there.
            for name in sorted(names, key=lambda name: (name.endswith(".idx"), name)):
                if not name.startswith(_TEMPORARY) and not name.endswith(".lock"):
                    yield f"{here}/{name}"

    def _is_kept(self, path: str) -> bool:
        parts = PurePosixPath(path).parts
        if parts[0] == "projects" and len(parts) == 3 and parts[2] in _BESIDE_CLONES:
            return False
        if parts[0] == "agents" and len(parts) == 3 and parts[2].endswith("-staging"):
            return False
        return parts[-1] not in (".lock", "__pycache__") and not parts[-1].endswith(_BESIDE_DATABASE)

    def _link(self, path: str) -> None:
        target = str((self.home / path).readlink())
        if is_inside(path, target) and _is_text(path + target):
            self.links[path] = target
        else:
            self.left_out.append(_shown(path))

    def _opened(self, paths: Iterable[str], kept: KeepFile) -> Iterator[HomeFile]:
        for path in paths:
            if not _is_text(path):
                self.left_out.append(_shown(path))
                continue
            try:
                found = (self.home / path).stat()
                if path.endswith(_DATABASE):
                    yield from self._database(path, found.st_mode & 0o700)
                    continue
                if kept(path, found.st_mode & 0o700, found.st_size, _stamp(found)):
                    continue
                with (
                    (self.home / path).open("rb") as file,
                    tempfile.SpooledTemporaryFile(_MEMORY_BYTES) as copy,
                ):
                    found = os.fstat(file.fileno())
                    # Its length is known only when it has been read: others may write it.
                    while chunk := file.read(_CHUNK_BYTES):
                        copy.write(chunk)
                    size = copy.tell()
                    copy.seek(0)
                    yield HomeFile(path, found.st_mode & 0o700, copy, size, _stamp(found))  # type: ignore[arg-type]  # it reads as one
            except FileNotFoundError:
                # Removed, or packed, since its directory was read.
                continue
            except PermissionError:
                self.left_out.append(_shown(path))

    def _database(self, path: str, mode: int) -> Iterator[HomeFile]:
        """A SQLite file as its last transaction left it; what others write is in a file beside it for a while."""
        with tempfile.NamedTemporaryFile(suffix=_DATABASE) as copy:
            try:
                with (
                    contextlib.closing(
                        sqlite3.connect((self.home / path).as_uri() + "?mode=ro", uri=True)
                    ) as there,
                    contextlib.closing(sqlite3.connect(copy.name)) as here,
                ):
                    there.backup(here)
            except sqlite3.Error:
                # Not one of SQLite, or a damaged one: as it is.
                copy.truncate(0)
                copy.write((self.home / path).read_bytes())
                copy.flush()
            with Path(copy.name).open("rb") as file:
                yield HomeFile(path, mode, file, os.fstat(file.fileno()).st_size, "")

    def _remembered(self, path: str, content: bytes) -> Iterator[HomeFile]:
        with tempfile.SpooledTemporaryFile(_MEMORY_BYTES) as copy:
            copy.write(content)
            copy.seek(0)
            yield HomeFile(path, 0o600, copy, len(content), "")  # type: ignore[arg-type]  # it reads as one


def _stamp(found: os.stat_result) -> str:
    """What changes whenever a file does; nothing while that is not sure."""
    if time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) < _FRESH_NS:
        return ""
    return f"{found.st_ino}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def git_directories(home: Path) -> list[Path]:
    """The repositories of a home."""
    places = [place for pattern in _REPOSITORIES for place in sorted(home.glob(pattern))]
    return [
        directory
        for place in places
        for directory in (place, place / ".git")
        if (directory / "objects").is_dir() and (directory / "HEAD").is_file()
    ]


def is_place(path: str) -> bool:
    """Whether a backup may put a file there."""
    parts = path.split("/")
    if not path.isprintable() or len(path) > 4096 or any(part in ("", ".", "..") for part in parts):
        return False
    return parts[0] in DIRECTORIES if len(parts) > 1 else path in (*FILES, *KEYS)


def straying(links: Mapping[str, str]) -> list[str]:
    """The links that lead out of their directory of the home, by themselves or by way of others."""
    return [path for path in links if not _stays(path, links)]


def _stays(path: str, links: Mapping[str, str]) -> bool:
    top, *here = path.split("/")[:-1]
    left = links[path].split("/")[::-1]
    followed = 0
    while left:
        part = left.pop()
        if part == "..":
            if not here:
                return False
            here.pop()
        elif part not in ("", "."):
            here.append(part)
            target = links.get("/".join((top, *here)))
            if target is not None:
                followed += 1
                if target.startswith("/") or followed > _MOST_LINKS:
                    return False
                here.pop()
                left += target.split("/")[::-1]
    return True


def is_inside(path: str, target: str) -> bool:
    """Whether a link at `path` leads to something in the same directory of the home."""
    top = path.split("/", maxsplit=1)[0]
    end = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120 - nothing is there
    return not target.startswith("/") and end.split("/", maxsplit=1)[0] == top


class FilesDigest:
    """One hash of all files: their places, their modes and their contents."""

    def __init__(self) -> None:
        self.files = self.bytes = 0
        self._digest = hashlib.sha256()

    def add(self, path: str, mode: int, size: int, sha256: str) -> None:
        self.files += 1
        self.bytes += size
        self._digest.update(f"{path}\0{mode:o}\0{size}\0{sha256}\n".encode())

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def is_database_with_more(file: Path) -> bool:
    """Whether a SQLite file has transactions beside it that are not in it yet."""
    return any(each.stat().st_size > 0 for each in beside_database(file) if not each.name.endswith("-shm"))


def beside_database(file: Path) -> list[Path]:
    """What SQLite keeps beside a file of its own, and would take for a part of any other in its place."""
    if not file.name.endswith(_DATABASE):
        return []
    return [each for suffix in _BESIDE_DATABASE if (each := file.with_suffix(suffix)).exists()]


def write_file(place: Path, path: str, mode: int, stream: BinaryIO) -> str:
    """Write a new file below `place`; its hash."""
    target = place / path
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, new, 0o600 | (mode & 0o100)), "wb") as file:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def missing_from_home(
    connection: sa.Connection, home: Path, *, secret_key: Callable[[], str | None]
) -> Iterator[tuple[str, str]]:
    """What rows rely on and the home does not have, each with what to do about it."""
    again = "restore a backup of the whole home: `ratchet restore BACKUP --force`"
    for place, what, commits, ref in _named(connection, home):
        repository = next((each for each in (place, place / ".git") if (each / "HEAD").is_file()), None)
        if repository is None:
            yield f"{what} has no repository: {place} is missing", again
            continue
        lost = _lost_commits(repository, commits)
        if lost:
            yield f"{what}: {place} does not have {len(lost)} commits that rows name: {_some(lost)}", again
        broken = _broken_refs(repository)
        if broken:
            yield f"{what}: {place} has refs to nothing: {_some(broken)}", again
        if ref and not lost and not broken:
            yield from _missing_refs(repository, what, commits, ref)
    for name, commit in connection.execute(_VERSIONS):
        place = home / "agents" / name / commit
        if not place.is_dir():
            yield f"version {commit} of agent {name} has no directory: {place} is missing", again
    yield from _unreadable_secrets(connection, home / KEY, secret_key)


def _missing_refs(
    repository: Path, what: str, commits: list[str], ref: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    name, commit = ref
    point = f"`git --git-dir={repository} update-ref"
    if not _git(repository, "for-each-ref", name):
        yield (
            f"{what}: {repository} has no {name}",
            f"point it at what the ledger has: {point} {name} {commit}`",
        )
    held = set(_git(repository, "rev-list", "--all").split())
    loose = [each for each in commits if each not in held]
    if loose:
        yield (
            f"{what}: no ref of {repository} leads to {len(loose)} commits that rows name, and git may remove them: "
            f"{_some(loose)}",
            f"point one at each: {point} refs/found/{loose[0]} {loose[0]}`",
        )


def _unreadable_secrets(
    connection: sa.Connection, file: Path, secret_key: Callable[[], str | None]
) -> Iterator[tuple[str, str]]:
    owners = (("project", project_secrets.c.project_id), ("agent", agent_secrets.c.agent_id))
    found = [
        (f"{row.name} of {kind} {row[0]}", row.value)
        for kind, number in owners
        for row in connection.execute(
            sa.select(number, number.table.c.name, number.table.c.value).order_by(number)
        )
    ]
    if not found:
        return
    # Loaded here: few need it.
    from cryptography.fernet import Fernet, InvalidToken

    configured = secret_key()
    place = file if configured is None else "projects.secret_key"
    again = f"copy {KEY} from the old home, restore a backup that was made with --with-keys, or give the secrets again"
    if configured is None and not file.is_file():
        yield f"{len(found)} secrets cannot be read: {file} is missing", again
        return
    try:
        key = Fernet(file.read_text().strip() if configured is None else configured)
    except (ValueError, OSError) as error:
        yield f"{len(found)} secrets cannot be read: {place} is not a key: {error}", again
        return
    wrong = []
    for name, value in found:
        try:
            key.decrypt(value)
        except InvalidToken:
            wrong.append(name)
    if wrong:
        yield f"{place} is another key than the one that secrets were kept with: {_some(wrong)}", again


def _some(found: list[str]) -> str:
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


_VERSIONS = (
    sa.select(agents.c.name, agent_versions.c.commit)
    .join(agents, agents.c.id == agent_versions.c.agent_id)
    .where(agents.c.status != "deleted")
    .order_by(agents.c.name)
)


def _named(
    connection: sa.Connection, home: Path
) -> Iterator[tuple[Path, str, list[str], tuple[str, str] | None]]:
    """Each repository that rows name, the commits in it, and the ref that it must have with what it points at.

    The refs of a project are its owner's.
    """
    tried = sa.select(trials.c.run_id, trials.c.commit).where(trials.c.commit.is_not(None))
    best = dict(connection.execute(sa.select(research.c.run_id, research.c.best_commit)).all())
    for run_id, commits in _grouped(connection, tried.order_by(trials.c.run_id)):
        ref = (BEST, best[run_id]) if best.get(run_id) else None
        yield home / "research" / str(run_id) / "repo.git", f"research run {run_id}", commits, ref
    current = dict(connection.execute(sa.select(agents.c.name, agents.c.current)).all())
    for name, commits in _grouped(connection, _VERSIONS):
        ref = ("refs/heads/main", current.get(name) or commits[-1])
        yield home / "agents" / str(name) / "repo.git", f"agent {name}", commits, ref
    of_steps = (
        sa.select(projects.c.id, protocol_steps.c.commit)
        .join(protocols, protocols.c.run_id == protocol_steps.c.run_id)
        .join(projects, projects.c.id == protocols.c.project_id)
        .where(protocol_steps.c.commit.is_not(None), projects.c.archived_at.is_(None))
        .order_by(projects.c.id)
    )
    kept = dict(_grouped(connection, of_steps))
    present = sa.select(projects.c.id, projects.c.local_path, projects.c.facts)
    for project_id, local, facts in connection.execute(
        present.where(projects.c.archived_at.is_(None)).order_by(projects.c.id)
    ):
        commits = kept.get(project_id, [])
        # What was cloned here is of the home, also while no step has a commit.
        if not commits and not (facts or {}).get("cloned"):
            continue
        below = home / "projects" / str(project_id)
        clones = [each for each in git_directories(home) if each.is_relative_to(below)]
        place = Path(local) if local is not None and Path(local).exists() else next(iter(clones), below)
        yield place, f"project {project_id}", commits, None


def _grouped(connection: sa.Connection, query: sa.Select[Any]) -> Iterator[tuple[object, list[str]]]:
    owner: object = None
    commits: list[str] = []
    for key, commit in connection.execute(query):
        if key != owner and commits:
            yield owner, commits
            commits = []
        owner = key
        commits.append(commit)
    if commits:
        yield owner, commits


def _lost_commits(repository: Path, commits: list[str]) -> list[str]:
    asked = "".join(f"{commit}^{{commit}}\n" for commit in commits)
    answer = _git(repository, "cat-file", "--batch-check=%(objectname)", given=asked).splitlines()
    return [commit for commit, line in zip(commits, answer, strict=True) if line.endswith("missing")]


def _broken_refs(repository: Path) -> list[str]:
    refs = _git(repository, "for-each-ref", "--format=%(objectname) %(refname)").split("\n")
    named = {name: hash_ for hash_, _, name in (line.partition(" ") for line in refs if line)}
    lost = _lost_objects(repository, list(named.values()))
    return [name for name, hash_ in named.items() if hash_ in lost]


def _lost_objects(repository: Path, hashes: list[str]) -> set[str]:
    answer = _git(repository, "cat-file", "--batch-check=%(objectname)", given="\n".join([*hashes, ""]))
    return {line.split()[0] for line in answer.splitlines() if line.endswith("missing")}


def _git(repository: Path, *words: str, given: str = "") -> str:
    own = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1"}
    # Nothing of the repository's own settings may run a program, and it may be another user's.
    command = [
        "git",
        f"--git-dir={repository}",
        "-c",
        "safe.directory=*",
        "-c",
        "core.fsmonitor=false",
        *words,
    ]
    try:
        done = run_program(command, given.encode(), environment=own, seconds=600)
    except (OSError, TookTooLong) as error:
        raise _unreadable(repository, error) from error
    if done.returncode:
        raise _unreadable(repository, decoded(done.stderr).strip() or f"git ended with {done.returncode}")
    return done.stdout.decode()


def _unreadable(repository: Path, why: object) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"the repository {repository} cannot be read: {why}",
        hint="is git installed, and may this user read it?",
    )


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _relative(path: Path, home: Path) -> str:
    return path.relative_to(home).as_posix()


def _is_text(path: str) -> bool:
    return path.isprintable()


def _shown(path: str) -> str:
    return sendable(path)
