"""An overlay mount over a shared checkout: a large tree in milliseconds, a commit that looks only at what changed."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ratchet.files import empty, lock_of
from ratchet.workspaces.directories import mount_overlay, remove_tree, unmount
from ratchet.workspaces.errors import RepositoryError, WorkspaceError
from ratchet.workspaces.files import DirectorySnapshot, Filler, WrittenFiles
from ratchet.workspaces.objects import ObjectBatch
from ratchet.workspaces.trees import TreeChange, compare
from ratchet.workspaces.workspace import Ground, opened_root, writing

_NEAR = 64
_KEPT = 4
_TRIES = 5
_number = itertools.count()


@dataclass(frozen=True, slots=True)
class WarmCopy:
    tree: str
    files: Path


class WarmCheckouts:
    """Those of one repository. Several processes share them; a shared lock keeps one while it is in use."""

    def __init__(self, root: Path) -> None:
        self._root = root / "warm"
        self._held: dict[str, tuple[int, int]] = {}
        # Users are counted here, and one thread builds while the others wait for what it builds.
        self._lock = threading.Lock()

    def borrow(self, ground: Ground, tree: str) -> WarmCopy:
        """A checkout of the tree, or of one near it. Give it back with `give_back`."""
        with self._lock:
            for _ in range(_TRIES):
                for candidate in self._nearest(ground, tree):
                    if self._hold(candidate):
                        return WarmCopy(candidate, self._root / candidate / "files")
                self._build(ground, tree)
                if self._hold(tree):
                    self._evict(ground)
                    return WarmCopy(tree, self._root / tree / "files")
            raise WorkspaceError(f"a shared checkout in {self._root} is removed as often as it is made")

    def give_back(self, warm: WarmCopy) -> None:
        with self._lock:
            descriptor, users = self._held[warm.tree]
            if users > 1:
                self._held[warm.tree] = (descriptor, users - 1)
            else:
                del self._held[warm.tree]
                os.close(descriptor)

    def _nearest(self, ground: Ground, tree: str) -> Iterator[str]:
        """What is there, the nearest first, as far as it is near."""
        names = self._listed()
        if tree in names:
            yield tree
            return
        distances = {}
        for name in names:
            changes = compare(ground.objects.tree, name, tree)
            with contextlib.suppress(RepositoryError):  # its tree has been collected since
                distances[name] = sum(1 for _ in itertools.islice(changes, _NEAR + 1))
        yield from sorted((name for name in distances if distances[name] <= _NEAR), key=distances.__getitem__)

    def _listed(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(self._root)  # noqa: PTH208 - only names
        return []

    def _hold(self, tree: str) -> bool:
        if tree in self._held:
            descriptor, users = self._held[tree]
            self._held[tree] = (descriptor, users + 1)
            return True
        opened = lock_of(self._root / tree / "lock", shared=True)
        if opened is None:
            return False
        os.utime(opened)
        self._held[tree] = (opened, 1)
        return True

    def _build(self, ground: Ground, tree: str) -> None:
        made = ground.claim.directory / f"warm-{next(_number)}"
        with writing(made):
            (made / "files").mkdir(parents=True)
            (made / "lock").touch()
            with opened_root(made / "files") as root:
                Filler(ground.objects, ground.bounds, WrittenFiles()).fill(root, tree)
            self._root.mkdir(exist_ok=True)
            try:
                made.rename(self._root / tree)
            except OSError:  # another process was quicker
                remove_tree(made)

    def _evict(self, ground: Ground) -> None:
        """Remove the least recently used beyond a few, unless somebody uses them."""
        found = []
        for name in self._listed():
            with contextlib.suppress(FileNotFoundError):
                found.append(((self._root / name / "lock").stat().st_mtime, name))
        for _, name in sorted(found)[:-_KEPT]:
            descriptor = None if name in self._held else lock_of(self._root / name / "lock")
            if descriptor is not None:
                old = ground.claim.directory / f"warm-{next(_number)}"
                (self._root / name).rename(old)
                os.close(descriptor)
                remove_tree(old)


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
        self._warm: WarmCopy | None = None

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
        # In the mount as it is: a sandbox would continue with one that was put in its place.
        self._tree = tree
        with writing(self.path), opened_root(self.path) as root:
            empty(root)
            Filler(self._ground.objects, self._ground.bounds, WrittenFiles()).fill(root, tree)

    def snapshot(self, batch: ObjectBatch) -> str:
        ignore = self._ground.ignore(self.path)
        lower = self._warm.tree if self._warm is not None else None
        try:
            with opened_root(self._upper) as root:
                return DirectorySnapshot(batch, self._ground.bounds, WrittenFiles(), ignore).take(
                    root, self._tree, lower
                )
        finally:
            ignore.close()

    def place(self, changes: Iterable[TreeChange]) -> None:
        with writing(self.path), opened_root(self.path) as root:
            Filler(self._ground.objects, self._ground.bounds, WrittenFiles()).change(root, changes)

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
