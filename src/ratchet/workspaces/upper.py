"""How an overlay notes in its upper layer what of the lower one is gone."""

from __future__ import annotations

import os
import stat

_OPAQUE = "trusted.overlay.opaque"


def is_whiteout(each: os.DirEntry[str]) -> bool:
    """Whether an entry only says that something of this name was deleted."""
    if each.is_file(follow_symlinks=False) or each.is_dir(follow_symlinks=False) or each.is_symlink():
        return False
    status = each.stat(follow_symlinks=False)
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(descriptor: int) -> bool:
    """Whether a directory hides the one below it, with all that is in that."""
    try:
        return os.getxattr(descriptor, _OPAQUE) == b"y"
    except OSError:
        return False
