"""What a command loads: no more than it needs, counted rather than timed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import NamedTuple

import pytest

from tests.cli.program import Program

# Runs a command as `ratchet` does, and says last which modules it has loaded.
_SCRIPT = """
import json, sys
before = set(sys.modules)
from ratchet.cli import run
code = run(sys.argv[1:])
print(json.dumps({"code": code, "modules": sorted(set(sys.modules) - before)}))
"""
_WORKFLOW = """
workflow_id: report
steps:
  - {step_id: words, type: python_tool, tool: word_count, input_mapping: {text: hello}}
"""

# Packages of others, and our own, that reading the ledger takes; and what checks settings that somebody asks for.
_LEDGER = "sqlalchemy typing_extensions"
_READS = "config kernel ledger observe runtime"
_SETTINGS = "annotated_types pydantic pydantic_core typing_extensions typing_inspection"
_VECTORS = "numpy safetensors tokenizers"


class Loads(NamedTuple):
    """What a command may load beside click and `ratchet.cli`, `locks` and `operations`: packages of others,
    packages of ours, and how many modules in all."""

    command: str
    others: str
    ours: str
    modules: int


ALLOWED = [
    Loads("--help", "", "", 80),
    Loads("--version", "", "", 80),
    Loads("queue --help", "", "", 100),
    Loads("chat", "", "config kernel observe", 130),
    Loads("config show", f"{_SETTINGS} rich", "config kernel", 310),
    Loads("runs list", _LEDGER, _READS, 345),
    Loads("approval list", _LEDGER, _READS, 350),
    Loads("events", f"{_LEDGER} rich", _READS, 390),
    Loads("schedule list", _LEDGER, _READS, 365),
    Loads("queue list", f"{_LEDGER} {_SETTINGS} rich", _READS, 500),
    Loads("agent list", _LEDGER, f"{_READS} agents engines", 355),
    Loads("workflow list", _LEDGER, f"{_READS} sandbox tools workflows", 350),
    Loads("workflow validate --schema", _LEDGER, f"{_READS} flowkit workflows", 350),
    Loads("workflow validate report.yaml", f"{_LEDGER} yaml", f"{_READS} flowkit tools workflows", 415),
    Loads("tool list", f"{_LEDGER} rich", f"{_READS} tools workflows", 415),
    Loads(
        "tool search words",
        f"{_LEDGER} {_SETTINGS} {_VECTORS} yaml",
        f"{_READS} memory tools workflows",
        620,
    ),
    Loads("memory find words", f"{_SETTINGS} {_VECTORS} rich", "config kernel ledger memory observe", 450),
    Loads(
        "research tasks",
        f"{_SETTINGS} rich",
        "config judges kernel observe research sandbox workspaces",
        330,
    ),
    Loads("protocol list", _LEDGER, f"{_READS} protocols", 365),
    Loads("project list", f"{_LEDGER} cryptography", f"{_READS} projects protocols workspaces", 370),
    Loads("engine list", f"{_SETTINGS} rich", "config engines kernel observe sandbox", 490),
    Loads("ledger check", f"{_LEDGER} alembic mako markupsafe pygments", _READS, 540),
    Loads(
        "doctor", f"{_LEDGER} {_SETTINGS}", f"{_READS} agents doctor engines extras sandbox workspaces", 590
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """In a directory with a home as `ratchet init` makes it, where tools and memory were used once."""
    made = Program(tmp_path_factory.mktemp("start"))
    made.make_home()
    (made.directory / "report.yaml").write_text(_WORKFLOW)
    assert made("tool", "list").code == 0
    assert made("memory", "store", "words of a text").code == 0
    return made


@pytest.mark.parametrize("allowed", ALLOWED, ids=[each.command for each in ALLOWED])
def test_a_command_loads_only_what_it_needs(program: Program, allowed: Loads) -> None:
    loaded = modules_of(program, allowed.command)

    others = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - {"ratchet"}
    ours = {name.split(".")[1] for name in loaded if name.startswith("ratchet.")}
    assert public(others) <= {"click", *allowed.others.split()}
    assert public(ours) <= {"cli", "files", "operations", "programs", *allowed.ours.split()}
    assert len(loaded) <= allowed.modules
    assert "sqlalchemy.orm" not in loaded


@pytest.mark.parametrize("arguments", ["--help", "--version", "queue --help"])
def test_help_and_version_load_nothing_slow_of_the_standard_library(program: Program, arguments: str) -> None:
    slow = {"asyncio", "difflib", "importlib.metadata", "subprocess"}
    assert not slow & modules_of(program, arguments)


def modules_of(program: Program, command: str) -> set[str]:
    """The modules that a process has loaded when the command is done."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, *command.split()],
        cwd=program.directory,
        env=program.env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    # A doctor may find something wrong with this machine.
    assert found["code"] == 0 or command == "doctor", done.stderr
    return set(found["modules"])


def public(names: set[str]) -> set[str]:
    """Without private modules and what Cython puts beside compiled ones."""
    return {name for name in names if not name.startswith("_") and name != "cython_runtime"}
