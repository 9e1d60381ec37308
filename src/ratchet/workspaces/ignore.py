"""Which new files are left out of a commit: those that the tree's own .gitignore files name, as git reads them.

Only those files count. What a person excludes in a configuration or a clone of their own does not change a commit.
"""

from __future__ import annotations

from pathlib import Path

from ratchet.workspaces.conversation import Conversation
from ratchet.workspaces.git import Git


class Ignore:
    """Asks git about one directory. The process is started at the first question; `close` ends it."""

    def __init__(self, program: str, empty: Path, directory: Path) -> None:
        """`empty` becomes a git directory without content, so that no settings of a repository are read."""
        self._program = program
        self._empty = empty
        self._directory = directory
        self._conversation: Conversation | None = None

    def covers(self, path: str) -> bool:
        if self._conversation is None:
            words = ("check-ignore", "--no-index", "--stdin", "-z", "--verbose", "--non-matching")
            self._conversation = Conversation(
                Git(self._program, _empty_repository(self._empty)),
                *words,
                cwd=self._directory,
                seconds=20,
                GIT_WORK_TREE=str(self._directory),
                GIT_LITERAL_PATHSPECS="0",  # this command refuses it
            )
        with self._conversation.turn():
            self._conversation.say(b"./%s\0" % path.encode())  # no name can then be read as a pattern
            _source, _line, pattern, _path = (self._conversation.until(b"\0") for _ in range(4))
        return bool(pattern) and not pattern.startswith(b"!")

    def close(self) -> None:
        if self._conversation is not None:
            self._conversation.stop()


def _empty_repository(path: Path) -> Path:
    """The least that git takes for a git directory."""
    if (path / "HEAD").exists():
        return path
    for name in ("objects", "refs"):
        (path / name).mkdir(parents=True, exist_ok=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    return path
