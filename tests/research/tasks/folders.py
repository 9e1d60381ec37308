"""Task folders for tests: a small whole one, and ways to change single things of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ratchet.research.adapter import TaskAdapter
from ratchet.research.tasks import read_task

TOML = """\
[task]
name = "small"
recipe = ["recipe.py"]

[trial]
function = "answer"
file = "recipe.py"

[evaluator]
function = "score"
file = "score.py"
"""
RECIPE = "def answer(given):\n    return 1\n"
SCORE = "def score(given):\n    return {'score': given['trial']['answer']}\n"


@dataclass(frozen=True)
class Folder:
    path: Path

    def put(self, place: str, text: str) -> Path:
        target = self.path / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def toml(self, text: str) -> None:
        self.put("task.toml", text)

    def add(self, text: str) -> None:
        """Write more at the end of task.toml."""
        self.toml((self.path / "task.toml").read_text() + text)

    def swap(self, old: str, new: str) -> None:
        text = (self.path / "task.toml").read_text()
        assert old in text
        self.toml(text.replace(old, new))

    def read(self, variant: str | None = None) -> TaskAdapter:
        return read_task(self.path, variant)


def small(path: Path) -> Folder:
    folder = Folder(path)
    folder.put("task.toml", TOML)
    folder.put("recipe.py", RECIPE)
    folder.put("evaluator/score.py", SCORE)
    return folder
