"""Looking at a commit before it costs anything: what was changed, whether it compiles, how large it is.

It is read from the repository as it lies there. Nothing is checked out, executed or written.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from ratchet.kernel import TrialStatus
from ratchet.programs import DEVNULL, PIPE, Process, start_program
from ratchet.research.adapter import Refused, TaskAdapter
from ratchet.research.measurement.checkout import CandidateFiles, RecipePaths
from ratchet.research.measurement.result import Unmeasured
from ratchet.workspaces import Repository, TreeEntry
from ratchet.workspaces.objects import Cache
from ratchet.workspaces.trees import is_litter

_PROGRAM = Path(__file__).with_name("compiler.py")


class SyntaxProblem(NamedTuple):
    line: int
    message: str


class Outline(NamedTuple):
    """What a source is but for its looks: a hash of that, and how large and branched it is."""

    code: str
    nodes: int
    branches: int


class Compiler:
    """A process that compiles, started when first asked and again when it died. Any thread may ask."""

    def __init__(self) -> None:
        # Answers carry no names: one question at a time.
        self._lock = threading.Lock()
        self._process: Process | None = None
        self._owner = 0

    def check(self, file: str, source: bytes) -> SyntaxProblem | None:
        """What is wrong with a file. Raises `OSError` if there can be no process to tell."""
        answer = self._answer({"file": file, "bytes": len(source)}, source)
        if not answer:
            return SyntaxProblem(1, "the compiler did not survive it, or took too long")
        found = json.loads(answer)
        return None if found is None else SyntaxProblem(found["line"], found["message"])

    def outline(self, file: str, source: bytes) -> Outline | None:
        """What a file is but for its looks; nothing of one that does not compile."""
        answer = self._answer({"file": file, "bytes": len(source), "outline": True}, source)
        found = json.loads(answer) if answer else None
        return None if found is None else Outline(**found)

    def _answer(self, asked: Mapping[str, Any], source: bytes) -> bytes:
        question = json.dumps(asked).encode() + b"\n" + source
        with self._lock:
            # It may have been killed from outside. If two die in a row, the file kills them.
            for _ in range(2):
                if answer := self._ask(question):
                    return answer
        return b""

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if self._owner == os.getpid():
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                cast(IO[bytes], pipe).close()

    def _ask(self, question: bytes) -> bytes:
        """The answer, or nothing if the process died over it."""
        process = self._running()
        try:
            cast(IO[bytes], process.stdin).write(question)
            cast(IO[bytes], process.stdin).flush()
            answer = cast(IO[bytes], process.stdout).readline()
        except BrokenPipeError:
            answer = b""
        except BaseException:
            self.close()
            raise
        if not answer.endswith(b"\n"):
            self.close()
            return b""
        return answer

    def _running(self) -> Process:
        if self._process is None or self._owner != os.getpid():
            self._process = _start()
            self._owner = os.getpid()
        return self._process


def _start() -> Process:
    command = [sys.executable, "-I", "-S", str(_PROGRAM)]
    return start_program(command, input=PIPE, complaints=DEVNULL, cwd="/", environment={})


compiler = Compiler()
"""The one of this process."""
atexit.register(compiler.close)


def looks_itself(task: TaskAdapter) -> bool:
    """Whether its class does more than every task does, so that it needs files to look at."""
    kind = type(task)
    return kind.preflight is not TaskAdapter.preflight or kind.size_check is not TaskAdapter.size_check


def look(task: TaskAdapter, directory: Path) -> None:
    """Let the task look at a checkout. Raises `Unmeasured`."""
    try:
        size = task.size_check(directory)
        if size.verdict == "block":
            raise Refused(
                TrialStatus.SIZE_BLOCKED,
                f"it has {size.total_bytes:,} bytes; {size.limit_bytes:,} are allowed",
            )
        task.preflight(directory)
    except Refused as refused:
        if refused.status.valid or refused.status is TrialStatus.HARNESS_ABORT:
            reason = f"the task refuses a candidate as {refused.status}, which is no reason: {refused.reason}"
            raise Unmeasured(TrialStatus.INFRA_ERROR, reason) from None
        raise Unmeasured(refused.status, refused.reason) from None
    except Exception as error:
        reason = f"the task's own preflight broke: {type(error).__name__}: {error}"
        raise Unmeasured(TrialStatus.INFRA_ERROR, reason) from error


_NAMED = 5
_REMEMBERED = 10_000


class CandidateInspection:
    """What it has found out of a file it remembers, since most files of two candidates are the same."""

    def __init__(self, task: TaskAdapter, repository: Repository) -> None:
        self._task = task
        self._repository = repository
        self._recipe = RecipePaths(task.recipe)
        self._files = CandidateFiles(task)
        self._sized = RecipePaths(task.size_paths or task.recipe)
        self._sizes: Cache[int] = Cache(_REMEMBERED)
        self._compiled: Cache[tuple[SyntaxProblem | None]] = Cache(_REMEMBERED)

    def look(self, commit: str, base: str) -> None:
        """Raises `Unmeasured` for a commit that is not worth a measurement, and what the repository raises."""
        for path, entry in self._unread(commit, base):
            source = self._repository.read_file(commit, path)
            self._note_syntax(path, entry, compiler.check(path, source))

    def _unread(self, commit: str, base: str) -> Iterator[tuple[str, TreeEntry]]:
        """The files whose syntax was not checked yet, once everything else was found to be well."""
        self._check_changes(commit, base)
        files = self._repository.list_files(commit)
        recipe = self._recipe.within(files)
        self._check_kinds(recipe)
        self._check_there(recipe)
        self._check_size(commit, files)
        for path, entry in recipe.items():
            if path.endswith(".py"):
                known = self._compiled.get(entry.hash)
                if known is None:
                    yield path, entry
                else:
                    _refuse(path, *known)

    def _check_changes(self, commit: str, base: str) -> None:
        changes = self._repository.changes(base, commit)
        outside = [change.path for change in changes if _is_outside(self._recipe, change.path)]
        if outside:
            raise Unmeasured(
                TrialStatus.DISQUALIFIED,
                f"only {_listed(self._task.recipe)} may be changed, not {_listed(outside)}",
            )
        strays = self._files.strays(changes, lambda path: self._repository.read_file(commit, path))
        if strays:
            raise Unmeasured(TrialStatus.DISQUALIFIED, _listed(strays))

    def _check_kinds(self, recipe: Mapping[str, TreeEntry]) -> None:
        strange = [path for path, entry in recipe.items() if not entry.is_file]
        if strange:
            raise Unmeasured(
                TrialStatus.DISQUALIFIED, f"a recipe is made of plain files; {_listed(strange)} is none"
            )

    def _check_there(self, recipe: Mapping[str, TreeEntry]) -> None:
        gone = [
            each
            for each in self._task.recipe
            if not any(RecipePaths((each,)).covers(path) for path in recipe)
        ]
        if gone:
            raise Unmeasured(TrialStatus.PREFLIGHT_CRASH, f"{_listed(gone)} of the recipe is gone")

    def _check_size(self, commit: str, files: Mapping[str, TreeEntry]) -> None:
        limit = self._task.size_limit_bytes
        if limit is None:
            return
        sized = self._sized.within(files)
        total = sum(self._size(commit, path, entry) for path, entry in sized.items())
        if total > limit:
            raise Unmeasured(
                TrialStatus.SIZE_BLOCKED,
                f"{_listed(self._sized.paths)} has {total:,} bytes; {limit:,} are allowed",
                facts={"total_bytes": total, "limit_bytes": limit},
            )

    def _note_syntax(self, path: str, entry: TreeEntry, problem: SyntaxProblem | None) -> None:
        self._compiled.put(entry.hash, (problem,), 1)
        _refuse(path, problem)

    def _size(self, commit: str, path: str, entry: TreeEntry) -> int:
        known = self._sizes.get(entry.hash)
        if known is None:
            known = len(self._repository.read_file(commit, path)) if entry.is_file else 0
            self._sizes.put(entry.hash, known, 1)
        return known


def _is_outside(recipe: RecipePaths, path: str) -> bool:
    return not recipe.covers(path) and not any(map(is_litter, path.split("/")))


def _refuse(path: str, problem: SyntaxProblem | None) -> None:
    if problem is not None:
        raise Unmeasured(TrialStatus.PREFLIGHT_CRASH, f"{problem.message} ({path}:{problem.line})")


def _listed(paths: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more
