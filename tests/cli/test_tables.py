"""Tables on a real terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess

import pytest

from ratchet.ledger import Ledger
from tests.cli.program import MODULE, Program

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(program: Program, columns: int, *arguments: str) -> str:
    """What a terminal of that width is sent."""
    ours, theirs = pty.openpty()
    env = {**program.env, "COLUMNS": str(columns), "TERM": "xterm"}
    done = subprocess.Popen(
        [*MODULE, *arguments], cwd=program.directory, env=env, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    sent = b""
    try:
        while chunk := os.read(ours, 4096):
            sent += chunk
    except OSError:
        pass  # how a terminal says that nobody is left on the other side
    finally:
        os.close(ours)
        done.wait(30)
    return sent.decode()


@pytest.mark.soak
def test_on_a_narrow_terminal_only_the_last_column_is_cut(program: Program, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        tx.event("test.long", message="begins " + "x" * 500)
    sent = on_terminal(program, 60, "events")
    assert "\x1b[1m" in sent, "a terminal is given styles"
    _, row = _STYLE.sub("", sent).splitlines()
    assert "test.long" in row
    assert "begins" in row
    assert row.endswith("…")
    assert len(row) <= 60


@pytest.mark.soak
def test_no_color_is_heeded(program: Program, ledger: Ledger) -> None:
    program.env["NO_COLOR"] = "1"
    assert "\x1b[3" not in on_terminal(program, 100, "queue", "list")
