"""The directory in which a version is changed: made from a commit, and read when the session has ended."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ratchet.agentkit import StateStore
from ratchet.agents.contract import IGNORED, LOGS, MESSAGE_FILE, SHARED, STATE, UNTRACKED, AgentDirectory
from ratchet.config.workflow_settings import Agents
from ratchet.engines import Engine, Failure, Session, SessionFailed
from ratchet.engines.registry import EngineContext
from ratchet.kernel import RatchetError
from ratchet.ledger import Run
from ratchet.ledger.agents import AgentRow, AgentVersion
from ratchet.runtime import JobContext
from ratchet.workspaces import Repository
from ratchet.workspaces.directories import remove_tree
from ratchet.workspaces.git import Git, find_git

_MOST_FILES = 2_000
_MOST_BYTES = 64 * 1024 * 1024
_IGNORE_FILE = ".gitignore"
_CONFIGURATION = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
[remote "origin"]
\turl = ../repo.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
"""
# Where a clone keeps what decides what git does in it. The index and reflogs may change by looking.
_DECIDING = ("HEAD", "config", "packed-refs", "hooks", "info", "refs", "objects/info")


class UnfitFiles(RatchetError):
    """What an engine left cannot become a version."""

    http_status = 422


def read_tree(directory: Path) -> dict[str, bytes]:
    """Every file that belongs to the version, by its path. Raises `UnfitFiles` for what git could not keep."""
    found: dict[str, bytes] = {}
    size = 0
    for path in _files(directory, directory):
        name = path.relative_to(directory).as_posix()
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            found[name] = file.read(_MOST_BYTES - size + 1)
        size += len(found[name])
        if size > _MOST_BYTES or len(found) > _MOST_FILES:
            raise UnfitFiles(
                f"the agent has more than {_MOST_FILES} files or {_MOST_BYTES} bytes",
                hint="keep data out of its directory",
            )
    found[_IGNORE_FILE] = IGNORED.encode()
    return found


def _files(directory: Path, top: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.name in UNTRACKED or (directory == top and entry.name == _IGNORE_FILE):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path), top)
            elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                yield Path(entry.path)
            else:
                name = Path(entry.path).relative_to(top)
                raise UnfitFiles(f"{name} is neither a file nor a directory", hint="use plain files only")


def commit_tree(
    repository: Repository,
    files: Mapping[str, bytes],
    *,
    parent: str | None,
    message: str,
    at: int | None = None,
) -> str:
    """A commit with exactly these files."""
    before = {} if parent is None else repository.list_files(parent)
    gone = dict.fromkeys(before.keys() - files.keys())
    return repository.commit_files({**gone, **files}, parent=parent, message=message, at=at)


def check_out(repository: Repository, commit: str, directory: Path) -> None:
    """Fill `directory`, which is made, with the files of a commit, and make it a clone that stands at it."""
    directory.mkdir()
    for path, entry in repository.list_files(commit).items():
        if not entry.is_file:
            raise UnfitFiles(f"{path} is not a file, and an agent consists of files")
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(repository.read_file(commit, path))
    git = _clone(directory)
    (git / "refs" / "heads" / "main").write_text(f"{commit}\n")
    # It is no part of the version, and not of what an agent writes.
    (git / "info").mkdir(exist_ok=True)
    (git / "info" / "exclude").write_text(f"{SHARED}\n")
    Git(find_git(), git).run("read-tree", commit)


def begin_tree(directory: Path) -> None:
    """An empty directory that is a repository, for the first version."""
    directory.mkdir()
    (directory / _IGNORE_FILE).write_text(IGNORED)
    _clone(directory)


def _clone(directory: Path) -> Path:
    """The `.git` of a version. It borrows the objects of the agent's repository, so that it does not grow with them."""
    git = directory / ".git"
    for inside in ("objects/info", "refs/heads"):
        (git / inside).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "objects" / "info" / "alternates").write_text("../../../repo.git/objects\n")
    (git / "config").write_text(_CONFIGURATION)
    return git


def sync_tree(directory: Path) -> None:
    """Have everything in a directory on the disk before anything says that it is there."""
    for place, _, names in os.walk(directory, topdown=False):
        for path in (*(Path(place, name) for name in names), Path(place)):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def git_files(directory: Path) -> dict[str, bytes | None]:
    """What decides what git does in a clone, to see whether it was changed."""
    top = directory / ".git"
    if top.is_symlink() or not top.is_dir():
        return {}
    found: dict[str, bytes | None] = {}
    for name in _DECIDING:
        path = top / name
        inside = sorted(path.rglob("*")) if path.is_dir() and not path.is_symlink() else [path]
        for each in inside:
            plain = each.is_file() and not each.is_symlink()
            found[each.relative_to(top).as_posix()] = each.read_bytes() if plain else None
    return found


_STAGING = "-staging"


def sweep(place: AgentDirectory) -> None:
    """Remove every unfinished directory. Only for who holds the place: no other process can be at work in one then."""
    for path in place.root.iterdir():
        if path == place.new or path.name.endswith(_STAGING):
            remove_tree(path)


Opener = Callable[[str | None, EngineContext], Engine]
Tell = Callable[[JobContext, str], None]


@dataclass(frozen=True, slots=True)
class ArchitectWork:
    """One change of one agent. `base` is the version that is changed; the first one has none."""

    job: JobContext
    run: Run
    agent: AgentRow
    base: AgentVersion | None
    place: AgentDirectory
    repository: Repository
    engine: Engine
    message: str
    tell: Tell

    @property
    def settings(self) -> Agents:
        return self.job.runtime.settings.agents

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.run.spec)

    @property
    def parent(self) -> str | None:
        return None if self.base is None else self.base.commit

    @property
    def by(self) -> str:
        """How this change signs what it does to a state."""
        return f"architect, run {self.run.id}"

    def passed(self, stage: str) -> None:
        """Report its progress."""
        self.tell(self.job, stage)


def announce(job: JobContext, stage: str) -> None:
    """An event for those who watch."""
    with job.write() as tx:
        tx.event("agent.stage", message=stage, run_id=job.run_id)


def surroundings(job: JobContext) -> EngineContext:
    return EngineContext(job.runtime.settings, job.runtime.home, os.environ)


_LOG_BYTES = 256 * 1024
_MOST_LOGS = 16


def stage(work: ArchitectWork, staging: Path, commit: str | None, state: bytes | None) -> None:
    """A fresh copy of a version with this state, to be changed or looked at. Nothing of an earlier one is left."""
    remove_tree(staging)
    if commit is None:
        begin_tree(staging)
    else:
        check_out(work.repository, commit, staging)
    if state is not None:
        (staging / STATE).write_bytes(state)
    (staging / LOGS).mkdir(exist_ok=True)


def prepare(work: ArchitectWork, staging: Path) -> bytes | None:
    """Copy the version, its state as it is now, and the end of its logs. The state, as it was copied.

    The first version has nothing to be copied.
    """
    state = None
    if work.parent is None:
        stage(work, staging, None, None)
    else:
        live = work.place.version(work.parent)
        state = json.dumps(StateStore(live).read(), indent=2, ensure_ascii=False).encode() + b"\n"
        stage(work, staging, work.parent, state)
        _copy_logs(live / LOGS, staging / LOGS)
    if len(work.message) > work.settings.prompt_chars:
        (staging / LOGS / MESSAGE_FILE).write_text(work.message)
    return state


def last_change(work: ArchitectWork) -> int:
    """The number of the newest change of the live state; 0 where there is none."""
    if work.parent is None:
        return 0
    newest = StateStore(work.place.version(work.parent)).history(limit=1)
    return newest[0].number if newest else 0


def _copy_logs(source: Path, target: Path) -> None:
    """The end of each log. A running agent writes there, so nothing that is not a plain file is followed."""
    if not source.is_dir():
        return
    for entry in sorted(os.scandir(source), key=lambda each: each.name)[:_MOST_LOGS]:
        if entry.is_file(follow_symlinks=False):
            with open(os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as log:  # noqa: PTH123
                log.seek(max(0, entry.stat(follow_symlinks=False).st_size - _LOG_BYTES))
                (target / entry.name).write_bytes(log.read(_LOG_BYTES))


def set_aside(work: ArchitectWork, attempt_id: int) -> str | None:
    """Keep what did not pass for people to look at, and nothing of it in the way. Its path."""
    staging = work.place.staging(work.parent)
    if not staging.is_dir():
        return None
    work.place.quarantine.mkdir(exist_ok=True)
    kept = work.place.quarantine / f"run-{work.run.id}-attempt-{attempt_id}"
    remove_tree(kept)
    staging.rename(kept)
    # Looking at it with git must not run what a session may have put there.
    remove_tree(kept / ".git")
    by_age = sorted(work.place.quarantine.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
    for old in by_age[work.settings.quarantines :]:
        remove_tree(old)
    return str(kept)


# A larger state cannot be shown to an engine: it is held in memory here.
_MOST_STATE_BYTES = 64 * 1024 * 1024


class Decision(StrEnum):
    """What a change is about."""

    NOTHING = "nothing"
    STATE = "state"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """`commit` is there for a change of code only."""

    decision: Decision
    summary: str
    commit: str | None
    state: bytes
    answer: Mapping[str, Any]


def take(
    work: ArchitectWork,
    attempt_id: int,
    staging: Path,
    session: Session,
    guarded: Mapping[str, bytes | None],
    before: bytes | None,
) -> StagedFiles:
    """What the session left, under a ref of its own. Raises `SessionFailed` for what cannot be taken."""
    answer = session.output if isinstance(session.output, dict) else {}
    if refused := answer.get("refused"):
        raise SessionFailed(
            Failure.REFUSED, f"the engine refused: {refused}", session=session, hint="ask for something else"
        )
    try:
        if git_files(staging) != guarded:
            raise UnfitFiles("the session changed .git", hint="leave .git alone: the Architect commits")
        files = read_tree(staging)
        state = _state(staging)
        decision = _decision(work, files, state, before, answer)
        summary = str(answer.get("summary") or session.text or decision)[:2000].strip() or str(decision)
        commit = None
        if decision is Decision.CODE:
            commit = commit_tree(work.repository, files, parent=work.parent, message=summary)
            work.repository.advance(attempt_ref(attempt_id), commit, expected=None)
        return StagedFiles(decision, summary, commit, state, answer)
    except UnfitFiles as unfit:
        raise SessionFailed(Failure.BAD_OUTPUT, str(unfit), session=session, hint=unfit.hint) from unfit


def attempt_ref(attempt_id: int) -> str:
    return f"refs/ratchet/attempts/{attempt_id}"


def _state(staging: Path) -> bytes:
    path = staging / STATE
    if path.is_symlink() or not path.is_file():
        raise UnfitFiles(f"there is no {STATE}", hint=f"leave {STATE} in its place, valid under its schema")
    if path.stat().st_size > _MOST_STATE_BYTES:
        raise UnfitFiles(
            f"{STATE} has more than {_MOST_STATE_BYTES} bytes", hint="keep what was learned, not data"
        )
    return path.read_bytes()


def _decision(
    work: ArchitectWork,
    files: Mapping[str, bytes],
    state: bytes,
    before: bytes | None,
    answer: Mapping[str, Any],
) -> Decision:
    """What was really changed decides; an answer that says otherwise is a mistake."""
    if work.parent is None:
        return Decision.CODE
    known = {
        path: work.repository.read_file(work.parent, path) for path in work.repository.list_files(work.parent)
    }
    found = Decision.NOTHING if _same(state, before) else Decision.STATE
    if dict(files) != known:
        found = Decision.CODE
    said = answer.get("decision")
    if said is not None and said != found and not (said == Decision.CODE and found is Decision.STATE):
        raise UnfitFiles(
            f"the session said {said!r}, but what it changed is {str(found)!r}",
            hint="change what you say you change, and nothing else",
        )
    return found


def _same(state: bytes, before: bytes | None) -> bool:
    try:
        return before is not None and bool(json.loads(state) == json.loads(before))
    except (ValueError, RecursionError):
        return False
