"""Whatever a person gets wrong, the error names it, says what to do next, and ends with the right code."""

from __future__ import annotations

import contextlib
import io
import shlex
import socket
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.cli import run
from ratchet.config import load_settings
from ratchet.kernel import RunStatus
from ratchet.ledger import Transaction
from ratchet.ledger.agents import create_agent
from ratchet.ledger.projects import add_project
from ratchet.ledger.protocols import add_protocol
from ratchet.ledger.runs import create_run
from ratchet.ledger.statuses import change_run
from ratchet.ledger.workflows import save_workflow
from ratchet.runtime import open_ledger
from tests.cli.program import Ended

Typed = Callable[[str], Ended]

# What is typed, the exit code, what the error names, and what its hint says.
MISTAKES: list[tuple[str, int, str, str]] = [
    ("evnts", 2, "did you mean 'events'?", "`ratchet --help`"),
    ("runs lst", 2, "did you mean 'list'?", "`ratchet runs --help`"),
    ("runs xyzzy", 2, "there are: list, show", "`ratchet runs --help`"),
    ("runs list --statsu failed", 2, "'--status'", "`ratchet runs list --help`"),
    ("runs list --status broken", 2, "'broken' is not one of 'pending'", "`ratchet runs list --help`"),
    ("runs list -n lots", 2, "'lots' is not a whole number", "`ratchet runs list --help`"),
    ("runs list -n 0", 2, "0 is not a number from 1", "`ratchet runs list --help`"),
    ("runs show", 2, "'RUN'", "`ratchet runs show --help`"),
    ("events --type", 2, "'--type' requires an argument", "`ratchet events --help`"),
    ("runs show 99", 1, "run 99 does not exist", "`ratchet runs list`"),
    ("runs pause 1", 1, "run 1 is completed", "`ratchet runs show 1`"),
    ("runs resume 1", 1, "run 1 is completed", "start the same work again"),
    ("queue show 99", 1, "job 99 does not exist", "`ratchet queue jobs`"),
    ("queue pause nosuch", 2, "'nosuch'; there are: default", "[queues.nosuch]"),
    ("schedule pause nosuch", 1, "schedule nosuch does not exist", "`ratchet schedule list`"),
    ("schedule add x sometimes demo.primes", 2, "'sometimes'", "every weekday at 9am"),
    ("schedule add x 'every hour' nosuch", 2, "'nosuch'", "demo.primes"),
    ("approval approve 99", 1, "approval 99 does not exist", "`ratchet approval list"),
    ("engine check nosuch", 2, "there is no engine 'nosuch'", "[engines.command.nosuch]"),
    ("engine check codexx", 2, "there is no engine 'codexx'", "did you mean 'codex'?"),
    ("agent show greter", 1, "agent greter does not exist", "did you mean 'greeter'?"),
    ("workflow run raport", 1, "workflow raport does not exist", "did you mean 'report'?"),
    ("agent create sum 'Add numbers.' --engine search", 2, "engine search follows scores", "codex, claude"),
    ("agent show nosuch", 1, "agent nosuch does not exist", "`ratchet agent list`"),
    ("agent create greeter", 2, "the text is missing", "--from-file"),
    ("agent create Bad!Name hello", 2, "'Bad!Name'", "lower-case letters"),
    ("agent create greeter hello --engine nosuch", 2, "'nosuch'", "use one of"),
    ("research status nosuch", 1, "research run nosuch does not exist", "`ratchet research list`"),
    ("research run nosuch", 2, "there is no task 'nosuch'", "circle_packing"),
    ("research run ./nosuch", 2, "'./nosuch'", "`ratchet research new NAME`"),
    ("research run circle_packing --specialists nobody", 2, "'nobody'", "it has"),
    ("research resume 1", 1, "research run 1 does not exist", "`ratchet research list`"),
    ("workflow run nosuch", 1, "workflow nosuch does not exist", "`ratchet workflow list`"),
    ("workflow run nosuch.yaml", 2, "nosuch.yaml", "name a JSON or YAML file"),
    ("workflow export nosuch --target moon --out o", 2, "'moon'", "cloud, edge, embedded or wasm"),
    ("tool run nosuch", 1, "tool nosuch does not exist", "`ratchet tool list`"),
    ("tool add", 2, "not clear what to add", "--from-run"),
    ("project show nosuch", 1, "project 'nosuch' does not exist", "`ratchet project add`"),
    ("project add /no/such/place", 2, "'/no/such/place'", "address of a repository"),
    ("protocol new 'Do it.'", 2, "is in no git repository", "`ratchet project list`"),
    ("protocol show nosuch", 1, "protocol 'nosuch' does not exist", "`ratchet protocol list`"),
    ("protocol resume 2", 1, "protocol 2 is completed", "`ratchet protocol new` makes another one"),
    ("protocol start 2", 1, "protocol 2 is completed", "`ratchet protocol show 2`"),
    ("protocol resume 3", 1, "protocol 3 is cancelled", "`ratchet protocol log 3` shows why"),
    ("protocol resume 4", 1, "protocol 4 is pending", "`ratchet protocol start 4`"),
    ("protocol run-next 2", 1, "protocol 2", "`ratchet protocol show 2`"),
    ("protocol cancel 2", 1, "run 2 is completed", "what has ended stays as it is"),
    ("protocol open-pr 3", 1, "protocol 3 is cancelled", "`ratchet protocol new`"),
    ("step show 99", 1, "step 99 does not exist", "PROTOCOL/NN"),
    ("spec validate nowhere.json", 2, "nowhere.json", "name a file"),
    ("memory find x", 2, "no memory here", "`ratchet memory store TEXT`"),
    ("memory store x --data {", 2, "--data is not JSON", '{"run": 3}'),
    ("ledger restore nowhere.tgz", 2, "'nowhere.tgz'", "`ratchet ledger restore --help`"),
    ("config show --log-level loud", 2, "'loud'", "where it was set"),
    ("config show --database-url mysql://x", 2, "'mysql'", "where it was set"),
    ("serve --host no.such.host.invalid --port 0", 2, "no.such.host.invalid", "an address of this machine"),
    ("serve --port 70000", 2, "70000 is not a number from 0 to 65535", "`ratchet serve --help`"),
    ("serve --port here", 2, "'here' is not a whole number", "`ratchet serve --help`"),
    ("research run circle_packing --hours never", 2, "'never' is not a number", "research run --help`"),
    ("research run circle_packing --hours nan", 2, "nan is not a number above 0", "research run --help`"),
    ("man nosuch", 2, "'nosuch'", "`ratchet --help`"),
    ("dev model-server --script nowhere.toml", 2, "nowhere.toml", "name a script"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in no repository, with a home that has a run and three protocols: completed, cancelled, pending."""
    directory = tmp_path_factory.mktemp("mistakes")
    loaded = load_settings({"home": str(directory / ".ratchet")}, env={}, cwd=directory)
    with open_ledger(loaded) as ledger, ledger.write() as tx:
        project = add_project(tx, "shop", base_branch="main")
        create_agent(tx, "greeter", "Greets.")
        save_workflow(tx, {"workflow_id": "report", "steps": []}, origin="test")
        _end(tx, create_run(tx, "workflow", "report"), RunStatus.COMPLETED)
        for number, status in enumerate((RunStatus.COMPLETED, RunStatus.CANCELLED, None), start=2):
            name = f"000{number}-change"
            made = create_run(tx, "protocol", name, project_id=project)
            add_protocol(tx, made, project, name, base_branch="main")
            if status is not None:
                _end(tx, made, status)
    return directory


def _end(tx: Transaction, run_id: int, status: RunStatus) -> None:
    for each in (RunStatus.PLANNING, RunStatus.PLANNED, RunStatus.RUNNING, status):
        change_run(tx, run_id, each)


@pytest.fixture
def typed(place: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Calls `ratchet` in that directory, with a line as it is typed."""
    monkeypatch.chdir(place)

    def call(line: str) -> Ended:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(shlex.split(line))
        return Ended(code, out.getvalue(), err.getvalue())

    return call


@pytest.mark.parametrize(("line", "code", "named", "hint"), MISTAKES, ids=[line for line, *_ in MISTAKES])
def test_a_mistake_is_named_with_the_next_step(
    typed: Typed, line: str, code: int, named: str, hint: str
) -> None:
    done = typed(line)
    error, *more = done.err.splitlines()
    assert done.code == code, done.err
    assert error.startswith("error: ")
    assert named in error
    assert more, "there is no hint"
    assert more[0].startswith("hint: ")
    assert hint in more[0]
    assert "Traceback" not in done.err


def test_a_port_that_is_taken_is_named(typed: Typed) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = typed(f"serve --host 127.0.0.1 --port {port}")
    assert (done.code, f"port {port} of 127.0.0.1 is taken" in done.err) == (1, True)
    assert "hint: stop the program that has it, or take a free one with `ratchet serve --port 0`" in done.err


def test_without_a_home_it_is_said_how_to_make_one(typed: Typed, tmp_path: Path) -> None:
    done = typed(f"runs list --home {tmp_path / 'none'}")
    assert (done.code, "hint: run `ratchet init`" in done.err) == (2, True)


def test_a_ledger_that_is_too_new_asks_for_a_newer_program(typed: Typed, tmp_path: Path) -> None:
    home = tmp_path / "newer"
    typed(f"init --home {home}")
    with contextlib.closing(sqlite3.connect(home / "ledger.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    done = typed(f"runs list --home {home}")
    assert (done.code, "9999" in done.err, "hint: " in done.err) == (1, True, True)


def test_an_engine_that_is_missing_is_named_with_how_to_get_it(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = typed("engine check gemini")
    assert done.code == 3
    assert "gemini is not on the PATH" in done.out
    assert "npm install" in done.out
