"""An overlay mount over a shared checkout: a large tree in milliseconds, a commit that looks only at what changed."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from ratchet.workspaces.fill import Filler, Written
from ratchet.workspaces.ground import Ground, opened_root, writing
from ratchet.workspaces.loose import Batch
from ratchet.workspaces.mount import mount_overlay, unmount
from ratchet.workspaces.removal import empty, remove_tree
from ratchet.workspaces.snapshot import Snapshot
from ratchet.workspaces.trees import Change, compare
from ratchet.workspaces.warm import Warm, WarmCheckouts


class Overlays:
    """The overlay workspaces of one repository, and whether this machine allows them."""

    def __init__(self, root: Path) -> None:
        self.warm = WarmCheckouts(root)
        self.volatile = True
        self._tried = False
        self._refusal: str | None = None
        # Tried once, by one thread.
        self._lock = threading.Lock()

    def refusal(self, ground: Ground) -> str | None:
        """Why there are no overlay mounts here, found by making one; `None` when there are."""
        with self._lock:
            if not self._tried:
                self._refusal = self._try(ground)
                self._tried = True
            return self._refusal

    def _try(self, ground: Ground) -> str | None:
        if sys.platform != "linux":
            return f"{sys.platform} has none"
        place = ground.claim.directory / "trial"
        said = ""
        for self.volatile in (True, False):
            remove_tree(place)
            try:
                _trial(place, volatile=self.volatile)
            except OSError as error:
                said = str(error.strerror)
            else:
                return None
            finally:
                unmount(place / "merged")
                remove_tree(place)
        return said


class OverlayCheckout:
    def __init__(self, ground: Ground, overlays: Overlays, path: Path, tree: str) -> None:
        self.path = path
        self._ground = ground
        self._overlays = overlays
        self._tree = tree
        self._upper = path.with_name(f".{path.name}.upper")
        self._work = path.with_name(f".{path.name}.work")
        self._warm: Warm | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        return {"GIT_CEILING_DIRECTORIES": str(self.path.parent)}

    @property
    def readable(self) -> tuple[Path, ...]:
        return ()

    def fill(self) -> None:
        self.remove()
        with writing(self.path):
            warm = self._warm = self._overlays.warm.borrow(self._ground, self._tree)
            for directory in (self.path, self._upper, self._work):
                directory.mkdir()
            mount_overlay(warm.files, self._upper, self._work, self.path, volatile=self._overlays.volatile)
        self.place(compare(self._ground.objects.tree, warm.tree, self._tree))

    def refill(self, base: str, tree: str) -> None:
        # In the mount as it is: a sandbox would go on with one that was put in its place.
        self._tree = tree
        with writing(self.path), opened_root(self.path) as root:
            empty(root)
            Filler(self._ground.objects, self._ground.bounds, Written()).fill(root, tree)

    def snapshot(self, batch: Batch) -> str:
        ignore = self._ground.ignore(self.path)
        lower = self._warm.tree if self._warm is not None else None
        try:
            with opened_root(self._upper) as root:
                return Snapshot(batch, self._ground.bounds, Written(), ignore).take(root, self._tree, lower)
        finally:
            ignore.close()

    def place(self, changes: Iterable[Change]) -> None:
        with writing(self.path), opened_root(self.path) as root:
            Filler(self._ground.objects, self._ground.bounds, Written()).change(root, changes)

    def own_commits(self) -> tuple[str, ...]:
        return ()

    def remove(self) -> None:
        if self._warm is not None:
            unmount(self.path)
            for directory in (self.path, self._upper, self._work):
                remove_tree(directory)
            self._overlays.warm.give_back(self._warm)
            self._warm = None


def _trial(place: Path, *, volatile: bool) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (place / name).mkdir(parents=True)
    (place / "lower" / "below").touch()
    mount_overlay(place / "lower", place / "upper", place / "work", place / "merged", volatile=volatile)
    (place / "merged" / "below").unlink()
    (place / "merged" / "above").touch()
    if sorted(os.listdir(place / "upper")) != ["above", "below"] or not (place / "lower" / "below").exists():  # noqa: PTH208 - only names
        raise OSError(0, "an overlay mount does not behave like one")
