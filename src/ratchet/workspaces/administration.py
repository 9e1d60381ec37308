"""What git keeps in a repository about one of its worktrees.

Written here because `git worktree add` looks at all worktrees and fails when another is half made: many could not be
made at once. The three files are documented in gitrepository-layout(5). They appear and go by one rename, so nobody
ever sees half of them.
"""

from __future__ import annotations

from pathlib import Path

from ratchet.workspaces.removal import remove_tree

_UNFINISHED = "ratchet-"


class Administration:
    """That of the worktree at `path`, whose name must be unique."""

    def __init__(self, repository: Path, path: Path) -> None:
        self.directory = repository / "worktrees" / path.name
        self._unfinished = repository / (_UNFINISHED + path.name)
        self._path = path

    @property
    def pointer(self) -> str:
        """The content of the worktree's own file `.git`."""
        return f"gitdir: {self.directory}\n"

    def make(self, head: str) -> None:
        self._unfinished.mkdir()
        (self._unfinished / "HEAD").write_text(f"{head}\n")
        (self._unfinished / "commondir").write_text("../..\n")
        (self._unfinished / "gitdir").write_text(f"{self._path / '.git'}\n")
        while True:
            # Git removes the directory with its last worktree.
            self.directory.parent.mkdir(exist_ok=True)
            try:
                self._unfinished.rename(self.directory)
            except FileNotFoundError:
                continue
            return

    def point(self, head: str) -> None:
        """Give it another HEAD, the whole of it at once."""
        unfinished = self.directory / "HEAD.ratchet"
        unfinished.write_text(f"{head}\n")
        unfinished.replace(self.directory / "HEAD")

    def is_pointed_at(self) -> bool:
        """Whether the worktree's own file still is the one that was written."""
        file = self._path / ".git"
        return not file.is_symlink() and file.is_file() and file.read_bytes() == self.pointer.encode()

    def remove(self) -> None:
        """Also where a session has damaged it; absent is fine."""
        _remove(self.directory, self._unfinished)


def remove_administrations(repository: Path, claim: str) -> None:
    """Those that a dead process left."""
    for directory in (repository / "worktrees").glob(f"*-{claim}-*"):
        _remove(directory, repository / (_UNFINISHED + directory.name))
    for unfinished in repository.glob(f"{_UNFINISHED}*-{claim}-*"):
        remove_tree(unfinished)


def _remove(directory: Path, aside: Path) -> None:
    try:
        directory.rename(aside)
    except OSError:  # not there, or a session put something in the way
        remove_tree(directory)
    remove_tree(aside)
