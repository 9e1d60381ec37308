"""What every kind of workspace stands on: one repository's objects and refs, its bounds, this process's corner."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ratchet.workspaces.bounds import Bounds
from ratchet.workspaces.claims import Claim
from ratchet.workspaces.errors import RepositoryUnwritable, UnsafePath, WorkspaceGone
from ratchet.workspaces.facts import Facts, Surveyor
from ratchet.workspaces.fill import OPEN_DIRECTORY
from ratchet.workspaces.git import Git
from ratchet.workspaces.gitfiles import check_git_files
from ratchet.workspaces.ignore import Ignore
from ratchet.workspaces.links import check_link
from ratchet.workspaces.loose import Batch
from ratchet.workspaces.objects import Objects
from ratchet.workspaces.refs import Refs
from ratchet.workspaces.trees import Change, Entry

_LONGEST_TARGET = 4096


@dataclass(frozen=True, slots=True)
class Ground:
    git: Git
    objects: Objects
    refs: Refs
    surveyor: Surveyor
    bounds: Bounds
    claim: Claim

    def survey(self, tree: str, batch: Batch | None = None) -> Facts:
        """Look at a whole tree before it is checked out or committed. Raises `TooLarge` or `UnsafePath`."""
        read = self.objects.tree if batch is None else batch.read_tree
        facts = self.surveyor.survey(read, tree, self.bounds)

        def target_of(link: Entry) -> str:
            return os.fsdecode(self.objects.content(link.hash, batch, limit=_LONGEST_TARGET))

        if not self.bounds.outward_links and not self.surveyor.has_sound_links(tree):
            for path in facts.links:
                check_link(read, target_of, tree, path)
            self.surveyor.note_sound_links(tree)
        return facts

    def check_git_files(self, changes: Iterable[Change], batch: Batch) -> None:
        """Raise `UnsafePath` for changes to git's own files that git would refuse."""
        check_git_files(self.git, changes, lambda entry: self.objects.content(entry.hash, batch))

    def ignore(self, directory: Path) -> Ignore:
        return Ignore(self.git.program, self.claim.directory / "empty.git", directory)


@contextlib.contextmanager
def opened_root(path: Path) -> Iterator[int]:
    """The directory of a workspace. Raises `WorkspaceGone` or `UnsafePath` when it is not what was made there."""
    try:
        descriptor = os.open(path, OPEN_DIRECTORY)
    except FileNotFoundError:
        raise WorkspaceGone(
            f"the workspace {path} is gone", hint="discard it and begin a new attempt"
        ) from None
    except OSError as error:
        raise UnsafePath(
            ".", f"of the workspace was replaced: {error.strerror}", hint="discard it"
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tell what a failed write means."""
    try:
        yield
    except OSError as error:
        raise RepositoryUnwritable(
            f"the workspace {path} could not be written: {error.strerror}",
            hint="free some space or make the directory writable, then try again",
        ) from error
