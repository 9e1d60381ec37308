"""The functions of Node's `path` that only reckon, for the paths of a workspace.

Files are read by names of their own: the project is at `/workspace`, wherever it really lies. So a script learns
nothing about this machine, and a path that leads out of the project can be told from one inside.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping

HOME = "/workspace"


def _normalise(path: str) -> str:
    if not path:
        return "."
    # Two slashes in front mean something of their own to POSIX, and nothing to Node.
    return posixpath.normpath("/" + path.lstrip("/") if path.startswith("/") else path)


def _join(*parts: str) -> str:
    return _normalise("/".join(part for part in parts if part))


def _resolve(*parts: str) -> str:
    return _normalise(posixpath.join(HOME, *parts))


def _dirname(path: str) -> str:
    return posixpath.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


def _basename(path: str, ending: str = "") -> str:
    name = posixpath.basename(path.rstrip("/"))
    return name if name == ending else name.removesuffix(ending)


def _extname(path: str) -> str:
    return posixpath.splitext(posixpath.basename(path.rstrip("/")))[1]


def _relative(start: str, to: str) -> str:
    found = posixpath.relpath(_resolve(to), _resolve(start))
    return "" if found == "." else found


FUNCTIONS: Mapping[str, Callable[..., str]] = {
    "path.join": _join,
    "path.resolve": _resolve,
    "path.normalize": _normalise,
    "path.dirname": _dirname,
    "path.basename": _basename,
    "path.extname": _extname,
    "path.relative": _relative,
    "url.fileURLToPath": lambda address: address.removeprefix("file://"),
    "process.cwd": lambda: HOME,
}
CONSTANTS: Mapping[str, str] = {"path.sep": "/", "path.delimiter": ":"}
