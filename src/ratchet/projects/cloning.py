"""Bringing a repository here: whole, or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

from ratchet.ledger.files import sync_file_system
from ratchet.projects.transfer import Transfer


def clone_into(transfer: Transfer, place: Path) -> bool:
    """Clone to `place`; whether this call did. It gets its name when it is finished, so what is there is a clone.

    Of two that clone at once, one gets the name, and the other takes what is there.
    """
    if place.exists():
        return False
    with transfer.claimed() as corner:
        made = transfer.clone(corner, into="clone")
        sync_file_system(made)
        try:
            made.rename(place)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
    return True
