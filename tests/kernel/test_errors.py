"""What this machine has run out of is recognised, however it is reported."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from ratchet.kernel import Misuse, exhausted, exhaustion_in


def test_a_full_database_and_one_that_cannot_be_opened_are_a_lack_of_room(tmp_path: Path) -> None:
    full = sqlite3.connect(":memory:")
    full.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError, match="full") as no_room:
        full.execute("CREATE TABLE t (x)")
    full.close()
    assert exhausted(no_room.value) == "disk space"
    with pytest.raises(sqlite3.OperationalError, match="unable to open") as closed:
        sqlite3.connect(tmp_path / "none" / "db")
    error = Misuse("it cannot be read")
    error.__cause__ = closed.value
    assert exhausted(error) == "open files, or of access to a database file"
    assert exhausted(sqlite3.OperationalError("no such table")) is None


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_what_a_program_said_of_it_is_recognised(number: int) -> None:
    assert exhausted(exhaustion_in(f"fatal: cannot write: {os.strerror(number)}")) is not None
    assert exhaustion_in("fatal: not a git repository") is None
