"""Whether a program was tried before, which is found out before a trial is paid for.

Two programs are the same if they differ only in comments, docstrings, blank lines and spaces. With the setting
`research.novelty` below 1 also an idea counts that nearly repeats another one, in its words and the lines it changes.
"""

from __future__ import annotations

import difflib
import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratchet.kernel import Misuse, decoded, exp_id
from ratchet.ledger.trials import TrialOrigin
from ratchet.research.adapter import TaskAdapter
from ratchet.research.measurement.checkout import RecipePaths, read_recipe
from ratchet.research.measurement.inspection import Outline, compiler
from ratchet.workspaces import Repository
from ratchet.workspaces.objects import Cache

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_FILES = 10_000
# Ideas that a new one is compared with, the newest of them.
IDEAS = 200


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a program is but for its looks. `shape` tells what kind it is: how large, and how much it branches."""

    code: str
    shape: tuple[int, int]
    texts: Mapping[str, str]

    def record(self) -> dict[str, Any]:
        return {"code": self.code, "shape": list(self.shape)}


class Novelty:
    """The programs of a run, each with the trial that it was."""

    def __init__(self, task: TaskAdapter, *, alike: float = 1.0) -> None:
        self._task = task
        self._alike = alike
        self._trials: dict[str, int] = {}
        self._outlines: Cache[Outline] = Cache(_FILES)
        self._ideas: deque[tuple[int, NDArray[np.float32]]] = deque(maxlen=IDEAS)

    @property
    def compares_ideas(self) -> bool:
        return self._alike < 1

    def load(self, origins: Iterable[TrialOrigin]) -> None:
        for each in origins:
            code = each.origin.get("code") if isinstance(each.origin, Mapping) else None
            if isinstance(code, str) and (each.status is None or each.status.tried):
                self._trials.setdefault(code, each.number)

    def add(self, code: str, number: int, idea: NDArray[np.float32] | None = None) -> None:
        self._trials.setdefault(code, number)
        if idea is not None:
            self.add_idea(number, idea)

    def forget(self, code: str, number: int) -> None:
        """Forget a trial that the machine spoiled: its program may be tried again."""
        if self._trials.get(code) == number:
            del self._trials[code]

    def read(self, directory: Path) -> Fingerprint | None:
        """The program in a workspace; nothing for one that is too large to be looked at."""
        try:
            return self._fingerprint(read_recipe(self._task, directory, ""))
        except Misuse:
            return None

    def read_commit(self, repository: Repository, commit: str) -> Fingerprint:
        files = RecipePaths(self._task.recipe).within(repository.list_files(commit))
        return self._fingerprint(
            {path: repository.read_file(commit, path) for path, entry in files.items() if entry.is_file}
        )

    def check(self, found: Fingerprint) -> None:
        """Raises `Misuse` for a program that was tried before."""
        twin = self._trials.get(found.code)
        if twin is not None:
            raise Misuse(
                f"this is the program of trial {exp_id(twin)} again, but for its looks, and would score the same",
                hint="change what it does; no trial was charged",
            )

    def check_idea(self, idea: NDArray[np.float32]) -> None:
        """Raises `Misuse` for an idea that nearly repeats an earlier one."""
        closest = max(((float(idea @ other), number) for number, other in self._ideas), default=(0.0, 0))
        if closest[0] >= self._alike:
            raise Misuse(
                f"this repeats the idea of trial {exp_id(closest[1])} ({closest[0]:.3f} alike; research.novelty is "
                f"{self._alike:g})",
                hint="try something else; no trial was charged",
            )

    def idea(
        self, hypothesis: str, before: Mapping[str, str], after: Mapping[str, str]
    ) -> NDArray[np.float32]:
        """An idea as a vector: what is said about it, and the lines that are new."""
        from ratchet.memory.embedders import WordLlama

        [vector] = WordLlama().embed(["\n".join((hypothesis, *new_lines(before, after)))])
        found: NDArray[np.float32] = vector
        return found

    def add_idea(self, number: int, idea: NDArray[np.float32]) -> None:
        self._ideas.append((number, idea))

    def _fingerprint(self, files: Mapping[str, bytes]) -> Fingerprint:
        whole, size, branches = hashlib.sha256(), 0, 0
        for path, content in sorted(files.items()):
            outline = self._outline(path, content)
            whole.update(f"{path}\0{outline.code}\0".encode())
            size, branches = size + outline.nodes, branches + outline.branches
        texts = {path: decoded(content) for path, content in files.items()}
        return Fingerprint(whole.hexdigest()[:32], (size, branches), texts)

    def _outline(self, path: str, content: bytes) -> Outline:
        key = hashlib.sha256(content).hexdigest()
        known = self._outlines.get(key)
        if known is None:
            found = compiler.outline(path, content) if path.endswith(".py") else None
            known = found or Outline(key[:32], len(content), 0)
            self._outlines.put(key, known, 1)
        return known


def new_lines(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The lines of `after` that `before` does not have."""
    found = []
    for path, text in after.items():
        lines = difflib.unified_diff(before.get(path, "").splitlines(), text.splitlines(), n=0, lineterm="")
        found += [line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")]
    return found
