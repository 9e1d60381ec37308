"""Work of a person that is in no commit."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from ratchet.workspaces.git import Git

# `git diff-files` and `git status` run a repository's filters; this only prints what the index holds.
_ENTRY = re.compile(
    rb"(?P<mode>\d+) (?P<hash>[0-9a-f]+) (?P<stage>\d)\t(?P<path>[^\0]+)\0"
    rb"  ctime: [^\n]+\n  mtime: (?P<seconds>\d+):(?P<nanoseconds>\d+)\n  dev: \d+\tino: (?P<inode>\d+)\n"
    rb"  uid: [^\n]+\n  size: (?P<size>\d+)\tflags: (?P<flags>[0-9a-f]+)\n"
)
_SKIPPED = 0x40000000
_SUBMODULE = b"160000"


def uncommitted(git: Git, files: Path, head: str | None, algorithm: str) -> list[str]:
    """Paths of a clone that are staged, changed or new, in order. Its index is not refreshed and no filter runs."""
    others = ("--others", "--exclude-standard", "--directory", "--no-empty-directory")
    new = _split(_run(git, files, "ls-files", "-z", *others))
    if head is None:
        staged = _split(_run(git, files, "ls-files", "-z"))
    else:
        staged = _split(git.run("diff-index", "--cached", "--name-only", "-z", head))
    listed = _run(git, files, "ls-files", "-z", "--stage", "--debug")
    touched = [
        _text(entry["path"]) for entry in _ENTRY.finditer(listed) if _is_touched(entry, files, algorithm)
    ]
    return sorted({*staged, *new, *touched})


def _is_touched(entry: re.Match[bytes], files: Path, algorithm: str) -> bool:
    """Whether a file differs from the index: by size and time, and where those differ by content."""
    if entry["stage"] != b"0":
        return True  # a merge is under way
    file = files / _text(entry["path"])
    try:
        found = file.lstat()
    except OSError:
        return not int(entry["flags"], 16) & _SKIPPED
    if entry["mode"] == _SUBMODULE:
        return not stat.S_ISDIR(found.st_mode)
    if _mode(found) != entry["mode"]:
        return True
    written = int(entry["seconds"]) * 1_000_000_000 + int(entry["nanoseconds"])
    same_time = (found.st_mtime_ns, found.st_size) == (written, int(entry["size"]))
    if same_time and found.st_ino & 0xFFFFFFFF == int(entry["inode"]):
        return False
    return _hash(file, found, algorithm) != entry["hash"].decode()


def _mode(found: os.stat_result) -> bytes:
    if stat.S_ISLNK(found.st_mode):
        return b"120000"
    return b"100755" if found.st_mode & stat.S_IXUSR else b"100644"


def _hash(file: Path, found: os.stat_result, algorithm: str) -> str | None:
    try:
        content = os.fsencode(file.readlink()) if stat.S_ISLNK(found.st_mode) else file.read_bytes()
    except OSError:
        return None
    return hashlib.new(algorithm, b"blob %d\0%s" % (len(content), content)).hexdigest()


def _run(git: Git, files: Path, *words: str) -> bytes:
    return git.run(*words, cwd=files, GIT_WORK_TREE=str(files))


def _split(said: bytes) -> list[str]:
    return [_text(part) for part in said.split(b"\0") if part]


def _text(path: bytes) -> str:
    return path.decode(errors="surrogateescape")
