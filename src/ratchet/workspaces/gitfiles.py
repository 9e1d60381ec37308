"""Files that git itself reads: what it would call damaged or dangerous must not be committed.

`git fsck` refuses such a commit, and so does every server that checks what is pushed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ratchet.workspaces.errors import GitFailed, RepositoryCorrupt, UnsafePath
from ratchet.workspaces.git import Git
from ratchet.workspaces.names import plain_name
from ratchet.workspaces.trees import Change, Entry

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
