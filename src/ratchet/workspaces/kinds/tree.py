"""A plain directory with the files of a commit and no git in it, so there is no git that a candidate could touch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ratchet.workspaces.fill import Filler, Written
from ratchet.workspaces.ground import Ground, opened_root, writing
from ratchet.workspaces.loose import Batch
from ratchet.workspaces.removal import empty, remove_tree
from ratchet.workspaces.snapshot import Snapshot
from ratchet.workspaces.trees import Change


class TreeCheckout:
    def __init__(self, ground: Ground, path: Path, tree: str) -> None:
        self.path = path
        self._ground = ground
        self._tree = tree
        self._written = Written()

    @property
    def environment(self) -> Mapping[str, str]:
        # Git would look for a repository above, and take the person's own for the one to work in.
        return {"GIT_CEILING_DIRECTORIES": str(self.path.parent)}

    @property
    def readable(self) -> tuple[Path, ...]:
        return ()

    def fill(self) -> None:
        self._written = Written()
        with writing(self.path):
            made = self._made()
            with opened_root(self.path) as root:
                if not made:
                    empty(root)
                Filler(self._ground.objects, self._ground.bounds, self._written).fill(root, self._tree)

    def _made(self) -> bool:
        """Make the directory; false if it was there already."""
        try:
            self.path.mkdir()
        except FileExistsError:
            return False
        return True

    def refill(self, base: str, tree: str) -> None:
        self._tree = tree
        self.fill()

    def snapshot(self, batch: Batch) -> str:
        return whole_snapshot(self._ground, self.path, self._tree, batch, self._written)

    def place(self, changes: Iterable[Change]) -> None:
        with writing(self.path), opened_root(self.path) as root:
            Filler(self._ground.objects, self._ground.bounds, self._written).change(root, changes)

    def own_commits(self) -> tuple[str, ...]:
        return ()

    def remove(self) -> None:
        remove_tree(self.path)


def whole_snapshot(
    ground: Ground, path: Path, tree: str, batch: Batch, written: Written, *, skip: str | None = None
) -> str:
    """The tree of a directory that holds everything, `skip` at its top left out."""
    ignore = ground.ignore(path)
    try:
        with opened_root(path) as root:
            return Snapshot(batch, ground.bounds, written, ignore, skip=skip).take(root, tree)
    finally:
        ignore.close()
