"""Looking at a commit before it costs anything: what was changed, whether it compiles, how large it is.

It is read from the repository as it lies there. Nothing is checked out, executed or written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ratchet.kernel import TrialStatus
from ratchet.research.adapter import TaskAdapter
from ratchet.research.measurement import Unmeasured
from ratchet.research.measuring.recipe import Recipe
from ratchet.research.measuring.syntax import SyntaxProblem, compiler
from ratchet.workspaces import Entry, Repository
from ratchet.workspaces.cache import Cache

_NAMED = 5
_REMEMBERED = 10_000


class Inspection:
    """What it has found out of a file it remembers, since most files of two candidates are the same."""

    def __init__(self, task: TaskAdapter, repository: Repository) -> None:
        self._task = task
        self._repository = repository
        self._recipe = Recipe(task.recipe)
        self._sized = Recipe(task.size_paths or task.recipe)
        self._sizes: Cache[int] = Cache(_REMEMBERED)
        self._compiled: Cache[tuple[SyntaxProblem | None]] = Cache(_REMEMBERED)

    def look(self, commit: str, base: str) -> None:
        """Raises `Unmeasured` for a commit that is not worth a measurement, and what the repository raises."""
        for path, entry in self._unread(commit, base):
            source = self._repository.read_file(commit, path)
            self._note_syntax(path, entry, compiler.check(path, source))

    async def look_soon(self, commit: str, base: str) -> None:
        """As `look`, for commits that are at hand, and while others in the event loop go on."""
        for path, entry in self._unread(commit, base):
            source = self._repository.read_file(commit, path)
            self._note_syntax(path, entry, await compiler.check_soon(path, source))

    def _unread(self, commit: str, base: str) -> Iterator[tuple[str, Entry]]:
        """The files whose syntax nobody has looked at, once everything else was found to be well."""
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
        outside = [
            change.path
            for change in self._repository.changes(base, commit)
            if not self._recipe.covers(change.path)
        ]
        if outside:
            raise Unmeasured(
                TrialStatus.DISQUALIFIED,
                f"only {_listed(self._task.recipe)} may be changed, not {_listed(outside)}",
            )

    def _check_kinds(self, recipe: Mapping[str, Entry]) -> None:
        strange = [path for path, entry in recipe.items() if not entry.is_file]
        if strange:
            raise Unmeasured(
                TrialStatus.DISQUALIFIED, f"a recipe is made of plain files; {_listed(strange)} is none"
            )

    def _check_there(self, recipe: Mapping[str, Entry]) -> None:
        gone = [
            each for each in self._task.recipe if not any(Recipe((each,)).covers(path) for path in recipe)
        ]
        if gone:
            raise Unmeasured(TrialStatus.PREFLIGHT_CRASH, f"{_listed(gone)} of the recipe is gone")

    def _check_size(self, commit: str, files: Mapping[str, Entry]) -> None:
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

    def _note_syntax(self, path: str, entry: Entry, problem: SyntaxProblem | None) -> None:
        self._compiled.put(entry.hash, (problem,), 1)
        _refuse(path, problem)

    def _size(self, commit: str, path: str, entry: Entry) -> int:
        known = self._sizes.get(entry.hash)
        if known is None:
            known = len(self._repository.read_file(commit, path)) if entry.is_file else 0
            self._sizes.put(entry.hash, known, 1)
        return known


def _refuse(path: str, problem: SyntaxProblem | None) -> None:
    if problem is not None:
        raise Unmeasured(TrialStatus.PREFLIGHT_CRASH, f"{problem.message} ({path}:{problem.line})")


def _listed(paths: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more
