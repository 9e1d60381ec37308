"""Tables on a real terminal."""

from __future__ import annotations

import contextlib
import io
import operator
import os
import pty
import re
import subprocess
from collections.abc import Callable

import pytest

from ratchet.cli.commands.doctor import print_checks
from ratchet.cli.tables import print_markdown, print_table
from ratchet.doctor import ProbeCheck
from ratchet.ledger import Ledger
from tests.cli.program import MODULE, Program

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Screen(io.StringIO):
    """A terminal, as far as a table asks."""

    def isatty(self) -> bool:
        return True


def on_screen(monkeypatch: pytest.MonkeyPatch, columns: int, draw: Callable[[], None]) -> list[str]:
    """The lines that a terminal of that width is given."""
    for name, value in {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    screen = Screen()
    with contextlib.redirect_stdout(screen):
        draw()
    return [line.rstrip() for line in _STYLE.sub("", screen.getvalue()).splitlines()]


def drawn(monkeypatch: pytest.MonkeyPatch, columns: int, rows: list[dict[str, object]]) -> list[str]:
    """The lines of a table on a terminal of that width."""
    by_name = {name: operator.itemgetter(name) for name in rows[0]}
    return on_screen(monkeypatch, columns, lambda: print_table(rows, by_name))


def test_a_table_that_fits_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, 20, [{"id": 7, "name": "seven"}]) == ["id  name", " 7  seven"]


def test_long_cells_share_the_room_that_short_ones_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, object] = {"id": 7, "what": "to be or not to be", "why": "that is the question here"}
    assert drawn(monkeypatch, 36, [row]) == [
        "id  what             why",
        " 7  to be or not to  that is the",
        "    be               question here",
    ]


def test_a_cell_of_many_lines_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(monkeypatch, 40, [{"id": 7, "text": "x" * 5000}])
    assert all(len(line) <= 40 for line in lines)
    assert len(lines) == 13
    assert lines[-1].endswith("x…")


def test_columns_that_could_not_be_read_become_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    row: dict[str, object] = {"name": "n" * 20, "what": "w" * 20, "why": "y" * 20}
    assert drawn(monkeypatch, 40, [row, row]) == [
        *(f"name  {'n' * 20}", f"what  {'w' * 20}", f"why   {'y' * 20}"),
        "",
        *(f"name  {'n' * 20}", f"what  {'w' * 20}", f"why   {'y' * 20}"),
    ]


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


def test_errors_are_wrapped_at_the_width_of_the_terminal(program: Program, ledger: Ledger) -> None:
    shown = on_terminal(program, 60, "agent", "show", "somebody")
    assert shown.replace("\r\n", "\n") == (
        "error: agent somebody does not exist\n"
        "hint: `ratchet agent list` shows them, `ratchet agent\n"
        "      create` makes one\n"
    )


def test_tables_in_markdown_are_drawn_on_a_terminal_and_left_to_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "What was kept, the best first\n\n| exp | idea |\n| --- | --- |\n| 002 | a \\| b \\< c |\n| 001 |  |"
    )
    assert on_screen(monkeypatch, 20, lambda: print_markdown(text)) == [
        *("What was kept, the", "best first", ""),
        *("exp  idea", "002  a | b < c", "001"),
    ]
    print_markdown(text)
    assert capsys.readouterr().out == f"{text}\n"


def test_the_words_of_the_doctor_stay_in_their_column(monkeypatch: pytest.MonkeyPatch) -> None:
    check = ProbeCheck("engine codex", "warn", "OPENAI_API_KEY is not set", fix="run `ratchet setup`")
    assert on_screen(monkeypatch, 44, lambda: print_checks([check])) == [
        "warn  engine codex  OPENAI_API_KEY is not",
        "                    set",
        "                    to fix: run `ratchet",
        "                    setup`",
        *("", "0 ok, 1 warnings, 0 failed"),
    ]


@pytest.mark.soak
def test_on_a_narrow_terminal_long_cells_are_wrapped(program: Program, ledger: Ledger) -> None:
    with ledger.write(actor="test") as tx:
        tx.event("test.long", message="begins " + "many words " * 10 + "ends")
    sent = on_terminal(program, 60, "events")
    assert "\x1b[1m" in sent, "a terminal is given styles"
    rows = _STYLE.sub("", sent).splitlines()
    assert all(len(row) <= 60 for row in rows)
    assert "test.long" in rows[1]
    assert "begins" in rows[1]
    assert rows[-1].endswith("ends")


@pytest.mark.soak
def test_no_color_is_heeded(program: Program, ledger: Ledger) -> None:
    program.env["NO_COLOR"] = "1"
    assert "\x1b[3" not in on_terminal(program, 100, "queue", "list")
