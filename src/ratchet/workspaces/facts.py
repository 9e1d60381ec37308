"""What is known about a whole tree without checking it out: how many files, and where its links are."""

from __future__ import annotations

from typing import NamedTuple

from ratchet.workspaces.bounds import Bounds
from ratchet.workspaces.cache import Cache
from ratchet.workspaces.errors import TooLarge
from ratchet.workspaces.trees import DIRECTORY, LINK, ReadTree

_REMEMBERED = 50_000


class Facts(NamedTuple):
    """`files` counts directories too, `depth` how deep they are nested."""

    files: int
    depth: int
    links: tuple[str, ...]


class Surveyor:
    """Surveys trees; a subtree is looked at once, so a new commit costs only what is new in it."""

    def __init__(self) -> None:
        self._known: Cache[Facts] = Cache(_REMEMBERED)
        self._sound: Cache[bool] = Cache(_REMEMBERED)

    def has_sound_links(self, tree: str) -> bool:
        """Whether the links of a whole tree were found to stay inside it."""
        return self._sound.get(tree) is not None

    def note_sound_links(self, tree: str) -> None:
        self._sound.put(tree, True, 1)

    def survey(self, read: ReadTree, tree: str, bounds: Bounds, path: str = "") -> Facts:
        """Raises `TooLarge` beyond the bounds, before a small object can stand for billions of files."""
        known = self._known.get(tree)
        above = path.count("/")
        if above + (known.depth if known else 0) > bounds.depth:
            raise TooLarge(
                path or ".", f"is more than {bounds.depth} directories deep", "depth", bounds.depth
            )
        if known is None:
            known = self._look(read, tree, bounds, path)
            self._known.put(tree, known, len(known.links) + 1)
        if known.files > bounds.files:
            raise _too_many(path, bounds)
        return known

    def _look(self, read: ReadTree, tree: str, bounds: Bounds, path: str) -> Facts:
        files = depth = 0
        links: list[str] = []
        for name, entry in read(tree).items():
            files += 1
            if entry.mode == DIRECTORY:
                below = self.survey(read, entry.hash, bounds, f"{path}{name}/")
                files += below.files
                depth = max(depth, below.depth + 1)
                links += [f"{name}/{link}" for link in below.links]
            elif entry.mode == LINK:
                links.append(name)
            if files > bounds.files:
                raise _too_many(path, bounds)
        return Facts(files, depth, tuple(links))


def _too_many(path: str, bounds: Bounds) -> TooLarge:
    return TooLarge(path or ".", f"holds more than {bounds.files} files", "files", bounds.files)
