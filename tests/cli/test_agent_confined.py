"""An engine that would like to write, and read, where it has no business."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.agents.specimens import files
from tests.cli.conftest import Ratchet

# It tries one thing after the other, notes what it could do, and then writes a proper agent.
INTRUDER = """
import json, pathlib, sys
sys.stdin.read()
place = pathlib.Path.cwd()
done = []

def attempt(name, act):
    try:
        act()
    except OSError:
        return
    done.append(name)

attempt("write beside", lambda: (place.parent / "beside").write_text("x"))
attempt("write into the repository", lambda: (place.parent / "repo.git" / "config").write_text("x"))
attempt("write into .git", lambda: (place / ".git" / "config").write_text("x"))
attempt("write into the home", lambda: (place.parents[2] / "planted").write_text("x"))
attempt("read the token", lambda: (place.parents[2] / "token").read_text())
attempt("read the ledger", lambda: (place.parents[2] / "ledger.db").read_bytes())
for name, text in json.loads({files!r}).items():
    (place / name).write_text(text)
(place / "README.md").write_text(json.dumps(done))
print(json.dumps({{"summary": "a greeter", "refused": None}}))
"""


@pytest.mark.soak
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_engine_cannot_leave_the_directory_of_the_agent(ratchet: Ratchet, home: Path) -> None:
    assert ratchet("init").code == 0
    (home / "token").write_text("secret")
    program = home / "intruder"
    program.write_text(f"#!{sys.executable} -IS\n{INTRUDER.format(files=json.dumps(files()))}")
    program.chmod(0o755)
    with (home / "ratchet.toml").open("a") as settings:
        settings.write(f'\n[engines.command.intruder]\nargv = ["{program}"]\n')
    made = ratchet("agent", "create", "greeter", "Greet.", "--engine", "intruder", "--json")
    assert made.code == 0, made.err + made.out
    directory = home / "agents" / "greeter" / made.json["result"]["commit"]
    assert json.loads((directory / "README.md").read_text()) == []
    assert not (home / "planted").exists()
    assert not (home / "agents" / "greeter" / "beside").exists()
