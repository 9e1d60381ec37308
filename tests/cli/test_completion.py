"""Completion answers in a real shell, from the catalogue, the commands and the ledger; and never complains."""

from __future__ import annotations

import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ratchet.cli.completion import QUERIES, names_in, place_of, rows
from ratchet.config import load_settings
from ratchet.ledger import Ledger
from ratchet.ledger.agents import create_agent
from ratchet.ledger.projects import add_project
from ratchet.ledger.protocols import add_protocol
from ratchet.ledger.runs import create_run
from ratchet.ledger.workflows import save_workflow
from ratchet.runtime import Runtime
from tests.cli.program import SOURCE, Program

HEAVY = ("alembic", "fastapi", "pydantic", "rich", "sqlalchemy", "structlog", "subprocess")
# What bash does when the key is pressed: it fills these variables and calls the function.
COMPLETE = """
complete_line() {
    COMP_LINE=$1 COMP_WORDS=($1)
    [[ $1 == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )) COMPREPLY=()
    "$completer" ratchet
    printf '%s\\n' "${COMPREPLY[*]}"
}
read -r _ _ _ _ completer _ <<< "$(complete -p ratchet)"
compopt() { COMPREPLY=("$@"); }
"""


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Nobody else can even read the ledger meanwhile."""
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("BEGIN EXCLUSIVE")
        yield


class Bash:
    """A real bash that has read the script, in the directory of the program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        script = program.directory / "bin" / "ratchet"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m ratchet.cli "$@"\n')
        script.chmod(0o755)
        self.env = {**program.env, "PATH": f"{script.parent}{os.pathsep}{program.env['PATH']}"}

    def __call__(self, *lines: str) -> list[list[str]]:
        """The words that each of the lines may continue with. What is printed on stderr fails the test."""
        asked = "".join(f"complete_line {shlex.quote(line)}\n" for line in lines)
        done = subprocess.run(
            ["bash", "--norc", "--noprofile", "-c", f'eval "$(ratchet completion bash)"\n{COMPLETE}{asked}'],
            cwd=self.program.directory,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [answer.split() for answer in done.stdout.splitlines()]


@pytest.fixture
def bash(plain_program: Program) -> Bash:
    return Bash(plain_program)


@pytest.fixture
def filled(ledger: Ledger, runtime: Runtime) -> Ledger:
    """A ledger with one thing of each kind that people give a name."""
    with ledger.write() as tx:
        create_agent(tx, "greeter", "Greets people,\nby name.")
        create_agent(tx, "gone; rm -rf *", "A name that a shell would obey.")
        save_workflow(tx, {"workflow_id": "report"}, origin="test")
        project = add_project(tx, "shop", base_branch="main")
        add_protocol(
            tx, create_run(tx, "protocol", "0001-add-login"), project, "0001-add-login", base_branch="main"
        )
        create_run(tx, "research", "tides")
        runtime.put_schedule(tx, "nightly", "every night at 2", "demo.primes", None)
    return ledger


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(plain_program: Program, shell: str) -> None:
    done = plain_program("completion", shell)
    assert done.code == 0
    assert "_RATCHET_COMPLETE" in done.out


def test_an_unknown_shell_is_misuse(plain_program: Program) -> None:
    done = plain_program("completion", "csh")
    assert done.code == 2
    assert "'bash', 'zsh', 'fish'" in done.err


@pytest.mark.soak
def test_bash_completes_commands_options_values_and_files(bash: Bash) -> None:
    commands, inner, options, choices, engines, tasks, files = bash(
        "ratchet pro",
        "ratchet queue ",
        "ratchet runs list --st",
        "ratchet runs list --status pl",
        "ratchet agent create x --engine c",
        "ratchet research run circle",
        "ratchet ledger restore ",
    )
    assert commands == ["project", "protocol", "processes"]
    assert inner == ["list", "jobs", "show", "cancel", "pause", "resume"]
    assert (options, choices) == (["--status"], ["planning", "planned"])
    assert {"claude", "codex"} <= set(engines)
    assert tasks == ["circle_packing"]
    assert files == ["-o", "default"]


@pytest.mark.soak
def test_bash_completes_names_of_the_ledger(program: Program, filled: Ledger, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "ratchet.toml").write_text('[engines.command.mine]\nargv = ["mine"]\n')
    agents, workflows, projects, protocols, runs, research, schedules, engines = Bash(program)(
        "ratchet agent show ",
        "ratchet workflow show re",
        "ratchet protocol list --project sh",
        "ratchet protocol show 0",
        "ratchet runs show ",
        "ratchet research status ",
        "ratchet schedule pause ",
        "ratchet engine check mi",
    )
    assert agents == ["greeter"]
    assert (workflows, projects, protocols) == (["report"], ["shop"], ["0001-add-login"])
    assert (runs, research, schedules) == (["2", "1"], ["2", "tides"], ["nightly"])
    assert engines == ["mine"]


def test_other_shells_are_told_what_a_name_is(program: Program, filled: Ledger) -> None:
    program.env |= {
        "_RATCHET_COMPLETE": "zsh_complete",
        "COMP_WORDS": "ratchet agent show ",
        "COMP_CWORD": "3",
    }
    assert program().out.splitlines() == ["plain", "greeter", "Greets people, by name."]


def test_every_query_fits_the_ledger(ledger: Ledger, database_url: str) -> None:
    place = place_of({"database_url": database_url})
    for word, query in QUERIES.items():
        assert rows(place, query) == [], word


@pytest.mark.soak
def test_without_a_ledger_or_with_one_that_cannot_be_read_there_are_no_names_and_no_complaints(
    bash: Bash, plain_program: Program
) -> None:
    assert bash("ratchet queue pause ") == [["default"]]
    assert not plain_program.home.exists()
    file = plain_program.make_home()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("INSERT INTO job_queues (name, paused) VALUES ('gpu', 1)")
    assert bash("ratchet queue pause ") == [["default", "gpu"]]
    with locked(file):
        assert bash("ratchet queue pause ") == [["default"]]
    file.write_bytes(b"this is no database" * 1000)
    assert bash("ratchet queue pause ", "ratchet queue sho") == [["default"], ["show"]]
    (plain_program.home / "ratchet.toml").write_text("no toml at all [")
    assert bash("ratchet engine check cod") == [["codemachine", "codex"]]


def test_a_ledger_of_a_newer_program_still_completes_what_it_has(plain_program: Program) -> None:
    file = plain_program.make_home()
    place = place_of({"home": str(plain_program.home)})
    database = sqlite3.connect(file)
    with database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
        database.execute("DROP TABLE agents")
        database.execute("INSERT INTO job_queues (name, paused) VALUES ('gpu', 1)")
    database.close()
    assert (names_in(place, "AGENT"), names_in(place, "QUEUE")) == ({}, {"gpu": ""})
    assert [path.name for path in plain_program.home.glob("ledger.db*")] == ["ledger.db"]


@pytest.mark.parametrize(
    ("flags", "env", "file"),
    [
        ({}, {}, ""),
        ({"home": "elsewhere"}, {}, ""),
        ({}, {"RATCHET_HOME": "~/mine"}, ""),
        ({"home": "/abs"}, {"RATCHET_HOME": "other"}, ""),
        ({"database_url": "sqlite:////a/b.db"}, {"RATCHET_DATABASE_URL": "sqlite:////c.db"}, ""),
        ({}, {"RATCHET_DATABASE_URL": "sqlite:///near.db"}, 'database_url = "sqlite:///far.db"'),
        ({}, {}, 'database_url = "sqlite:///far.db"'),
    ],
)
def test_the_ledger_is_where_the_settings_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: dict[str, object],
    env: dict[str, str],
    file: str,
) -> None:
    (tmp_path / ".ratchet").mkdir()
    (tmp_path / ".ratchet" / "ratchet.toml").write_text(file)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    for name, text in env.items():
        monkeypatch.setenv(name, text)
    loaded = load_settings(flags)
    place = place_of(flags)
    assert place.home == loaded.home
    assert place.path == loaded.settings.database_url.path


@pytest.mark.parametrize("line", ["ratchet agent show ", "ratchet agent create x --engine c"])
def test_completing_a_line_again_imports_no_command_and_nothing_heavy(tmp_path: Path, line: str) -> None:
    number = line.count(" ")
    script = (
        f"import os, sys; sys.path.insert(0, {str(SOURCE)!r}); "
        f"os.environ |= {{'_RATCHET_COMPLETE': 'bash_complete', 'COMP_WORDS': {line!r}, 'COMP_CWORD': '{number}'}}; "
        "from ratchet.cli.completion import answer; from ratchet.cli.program import root; "
        "answer(root, program='ratchet', variable='_RATCHET_COMPLETE'); "
        f"print([name for name in sys.modules if name in {HEAVY!r} or name.startswith('ratchet.cli.commands.')])"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    first, again = (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
        for _ in range(2)
    )
    assert "ratchet.cli.commands.agent" in first.stdout.splitlines()[-1], first.stderr
    assert again.stdout.splitlines()[-1] == "[]", again.stderr
    assert again.stdout.splitlines()[:-1] == first.stdout.splitlines()[:-1]
