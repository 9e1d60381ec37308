"""What every kind of workspace stands on: one repository's objects and refs, its bounds, this process's corner."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ratchet.workspaces.bounds import Bounds
from ratchet.workspaces.claims import Claim
from ratchet.workspaces.errors import (
    GitFailed,
    RepositoryCorrupt,
    RepositoryUnwritable,
    UnsafePath,
    WorkspaceGone,
)
from ratchet.workspaces.facts import Facts, Surveyor
from ratchet.workspaces.fill import OPEN_DIRECTORY
from ratchet.workspaces.git import Git
from ratchet.workspaces.ignore import Ignore
from ratchet.workspaces.loose import Batch
from ratchet.workspaces.names import plain_name, unsafe_name
from ratchet.workspaces.objects import Objects
from ratchet.workspaces.refs import Refs
from ratchet.workspaces.trees import LINK, Change, Entry, ReadTree, find

_ATTRIBUTES = (".gitattributes", "gitatt~1")
_MODULES = (".gitmodules", "gitmod~1")
_LONGEST_LINE = 2048
_LARGEST = 64 * 1024


def check_git_files(git: Git, changes: Iterable[Change], content_of: Callable[[Entry], bytes]) -> None:
    """Raise `UnsafePath` for a changed .gitattributes or .gitmodules that git would refuse."""
    for change in changes:
        name = plain_name(change.path.rpartition("/")[2])
        if change.after is None or not change.after.is_file or name not in _ATTRIBUTES + _MODULES:
            continue
        content = content_of(change.after)
        if len(content) > _LARGEST:
            raise UnsafePath(
                change.path, f"has more than {_LARGEST} bytes, too many for a file that git reads"
            )
        if name in _ATTRIBUTES and max(map(len, content.split(b"\n"))) >= _LONGEST_LINE:
            raise UnsafePath(change.path, f"has a line of more than {_LONGEST_LINE} bytes")
        if name in _MODULES:
            _check_modules(git, change.path, content)


def _check_modules(git: Git, path: str, content: bytes) -> None:
    try:
        listed = git.run("config", "--file", "-", "--null", "--list", input=content)
    except (GitFailed, RepositoryCorrupt):  # git does not understand it, and then does not act on it
        return
    for line in listed.decode(errors="replace").split("\0"):
        key, _, value = line.partition("\n")
        section, _, rest = key.partition(".")
        name, _, key = rest.rpartition(".")
        if section != "submodule":
            continue
        if ".." in name.replace("\\", "/").split("/"):
            raise UnsafePath(path, f"names a submodule {name!r}, which leads outside")
        if (
            key in ("url", "path") and (value.startswith("-") or "\n" in value or "%0a" in value.lower())
        ) or (key == "update" and value.startswith("!")):
            raise UnsafePath(path, f"sets {key} of a submodule to {value!r}, which would be run")


_HOPS = 40


def check_link(read: ReadTree, target_of: Callable[[Entry], str], tree: str, path: str) -> None:
    """Raise `UnsafePath` when the link at `path` of the tree leads out of it, or in circles.

    What a link leads to need not exist. A step through something absent is taken by its name alone.
    """
    here: list[str] = []
    rest = path.split("/")[::-1]
    hops = 0
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                raise _leads(path, "leads out of the workspace")
            here.pop()
            continue
        if unsafe_name(part) is not None:
            raise _leads(path, "leads into a git directory")
        entry = find(read, tree, [*here, part])
        if entry is None or entry.mode != LINK:
            here.append(part)
            continue
        hops += 1
        if hops > _HOPS:
            raise _leads(path, "leads through too many links")
        target = target_of(entry)
        if target.startswith("/"):
            raise _leads(path, f"leads to {target}, out of the workspace")
        rest.extend(target.split("/")[::-1])


def _leads(path: str, how: str) -> UnsafePath:
    return UnsafePath(
        path,
        f"is a symbolic link that {how}",
        hint="make it relative and keep it inside, or set `outward_links`",
    )


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
