"""What goes wrong is told in one place: a message, the next step, the exit code, and no traceback."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.ledger import Ledger
from ratchet.ledger.runs import create_run
from tests.cli.conftest import Ratchet, install_plugin
from tests.cli.program import MODULE, Program

READING = [
    ["events"],
    ["events", "--follow"],
    ["runs", "list"],
    ["runs", "show", "1"],
    ["runs", "cancel", "1"],
    ["queue", "list"],
    ["queue", "jobs"],
    ["queue", "show", "1"],
    ["queue", "pause", "default"],
    ["schedule", "list"],
    ["schedule", "remove", "nightly"],
    ["approval", "list"],
    ["processes"],
    ["ledger", "check"],
    ["ledger", "vacuum"],
    ["ledger", "backup", "copy"],
]
Keep = Callable[[subprocess.Popen[str]], subprocess.Popen[str]]


@pytest.mark.no_ledger
def test_without_a_ledger_a_command_says_so_and_makes_none(ratchet: Ratchet, home: Path) -> None:
    for arguments in READING:
        done = ratchet(*arguments)
        assert done.code == 2, arguments
        assert done.err.startswith("error: no ledger here"), arguments
        assert "hint: run `ratchet init`" in done.err
        assert not home.exists(), arguments
        assert not home.with_name("ledger.db").exists(), arguments


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("evnts", "events"), ("wroker", "worker"), ("run", "runs"), ("queue lst", "list"), ("docter", "doctor")],
)
def test_an_unknown_command_suggests_the_nearest(plain_program: Program, typed: str, meant: str) -> None:
    done = plain_program(*typed.split())
    assert done.code == 2
    assert f"did you mean '{meant}'?" in done.err


def test_an_unknown_command_like_no_other_lists_what_there_is(plain_program: Program) -> None:
    done = plain_program("ledger", "xyzzy")
    assert "there are: backup, restore, check, vacuum" in done.err


@pytest.mark.soak
def test_an_unknown_option_suggests_the_nearest(plain_program: Program) -> None:
    done = plain_program("queue", "jobs", "--statsu", "failed")
    assert done.code == 2
    assert "--status" in done.err
    assert "hint: see `ratchet queue jobs --help`" in done.err


def test_no_command_shows_the_help_and_is_misuse(plain_program: Program) -> None:
    done = plain_program()
    assert (done.code, done.out) == (2, "")
    assert "Commands:" in done.err


@pytest.mark.soak
def test_errors_are_json_when_json_was_asked_for(plain_program: Program) -> None:
    for arguments in (
        ["queue", "list", "--json"],
        ["--json", "nonsense"],
        ["nonsense", "--json"],
        ["--json"],
    ):
        done = plain_program(*arguments)
        told = json.loads(done.err)
        assert done.code == told["exit_code"] == 2
        assert told.keys() == {"error", "kind", "hint", "exit_code"}
        assert done.out == ""


@pytest.mark.soak
def test_a_corrupt_database_is_told_without_a_traceback(plain_program: Program) -> None:
    plain_program.make_home()
    (plain_program.home / "ledger.db").write_bytes(b"this is no database" * 1000)
    done = plain_program("runs", "list")
    assert done.code == 1
    assert "is damaged or is not a ledger" in done.err
    assert "ratchet ledger restore" in done.err
    assert "Traceback" not in done.err


@pytest.mark.soak
def test_a_newer_schema_is_told_without_a_traceback(plain_program: Program) -> None:
    plain_program.make_home()
    database = sqlite3.connect(plain_program.home / "ledger.db")
    with database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    done = plain_program("runs", "list")
    assert done.code == 1
    assert "9999" in done.err
    assert "upgrade" in done.err
    assert "Traceback" not in done.err


@pytest.mark.soak
def test_a_read_only_home_is_told_without_a_traceback(plain_program: Program) -> None:
    plain_program.make_home()
    plain_program.home.chmod(0o500)
    (plain_program.home / "ledger.db").chmod(0o400)
    done = _as_ordinary_user(plain_program, "queue", "pause", "default")
    plain_program.home.chmod(0o700)
    assert done.returncode == 1
    assert "ledger.db cannot be" in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.soak
def test_init_in_a_read_only_directory_is_told_without_a_traceback(plain_program: Program) -> None:
    plain_program.directory.chmod(0o500)
    done = _as_ordinary_user(plain_program, "init")
    plain_program.directory.chmod(0o700)
    assert done.returncode == 2
    assert "cannot be written: Permission denied" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.soak
def test_a_database_that_cannot_be_reached_is_told_without_its_password(plain_program: Program) -> None:
    done = plain_program("runs", "list", "--database-url", "postgresql://me:hush@127.0.0.1:1/none")
    assert done.code == 1
    assert "did not answer" in done.err
    assert "hush" not in done.err
    assert "Traceback" not in done.err


@pytest.mark.soak
def test_an_unexpected_error_is_short_and_v_shows_where_it_came_from(tmp_path: Path) -> None:
    broken = install_plugin(
        tmp_path / "plugins", "def add_kinds(kinds):\n    raise ZeroDivisionError('odd')\n"
    )
    program = Program(tmp_path, plugins=broken)
    program.make_home()
    arguments = ("schedule", "add", "nightly", "0 0 * * *", "demo.primes")
    done = program(*arguments)
    assert done.code == 1
    assert done.err.splitlines() == [
        "error: unexpected ZeroDivisionError: odd",
        "hint: run it again with -v to see where it happened",
    ]
    assert "Traceback" in program(*arguments, "-v").err


@pytest.mark.soak
def test_a_broken_plugin_does_not_keep_a_run_from_being_cancelled(tmp_path: Path) -> None:
    broken = install_plugin(tmp_path / "plugins", "import nothing_of_that_name\n")
    program = Program(tmp_path, plugins=broken)
    database = program.make_home()
    with (
        Ledger.open(f"sqlite:///{database}", program.home / "artifacts") as ledger,
        ledger.write(actor="test") as tx,
    ):
        run = create_run(tx, "workflow", "names")
    done = program("runs", "cancel", str(run))
    assert (done.code, done.out) == (0, f"Run {run} is cancelled.\n"), done.err


@pytest.mark.soak
def test_ctrl_c_ends_a_command_with_130(plain_program: Program, ending: Keep) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        process = ending(
            plain_program.start("runs", "list", "--database-url", f"postgresql://me@127.0.0.1:{port}/x")
        )
        with silent.accept()[0] as waiting:
            waiting.recv(1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert (out, err) == ("", "error: interrupted\n")


@pytest.mark.soak
def test_a_reader_that_had_enough_is_no_error(plain_program: Program) -> None:
    command = [*MODULE, "config", "show"]
    with subprocess.Popen(
        command,
        cwd=plain_program.directory,
        env=plain_program.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_told(plain_program: Program) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*MODULE, "config", "show"],
            cwd=plain_program.directory,
            env=plain_program.env,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_number_that_no_database_can_hold_is_misuse(ratchet: Ratchet, ledger: Ledger) -> None:
    for number in ("99999999999999999999", "0", "-1", "seven"):
        assert ratchet("runs", "show", number).code == 2


def _as_ordinary_user(program: Program, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Permissions bind root too, once it has given up the right to override them, for good, in its children."""
    drop = (
        "import ctypes, os, sys; libc = ctypes.CDLL(None); [libc.prctl(24, right, 0, 0, 0) for right in (1, 2)]; "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    return subprocess.run(
        [sys.executable, "-c", drop, *MODULE, *arguments],
        cwd=program.directory,
        env={**program.env, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_caller_has_closed_is_no_error(plain_program: Program, closed: str) -> None:
    line = f'exec "$0" -m ratchet.cli "$@" {closed}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, "config", "show"],
        cwd=plain_program.directory,
        env=plain_program.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert bool(done.stdout) is (">&-" not in closed.replace("2>&-", ""))
