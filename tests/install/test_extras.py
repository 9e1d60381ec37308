"""What is installed only where it is wanted: the core is small, and what is missing says how to have it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ratchet.doctor import extras
from ratchet.extras import PURPOSES, find_extra, install_line
from ratchet.kernel import Missing
from ratchet.protocols.codemachine.syntax import parse

ROOT = Path(__file__).parents[2]
MOST_PACKAGES = 60
# As if these were not installed, whatever the environment has.
WITHOUT = """
import sys
absent, *command = sys.argv[1:]
sys.modules.update(dict.fromkeys(absent.split()))
from ratchet.cli import run
sys.exit(run(command))
"""


def without(modules: str, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, modules, *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_core_has_few_packages() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    here = [line for line in lines if "win32" not in line and "sys_platform == 'emscripten'" not in line]
    names = {line.partition("==")[0] for line in here}
    assert not names & {"scipy", "wordllama", "tree-sitter", "tiktoken", "psycopg", "croniter"}
    assert len(names) <= MOST_PACKAGES, sorted(names)


def test_every_extra_has_a_purpose_and_is_listed_by_the_doctor() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert declared.keys() == PURPOSES.keys()
    assert {check.name: check.status for check in extras()} == {f"extra {name}": "ok" for name in declared}
    guide = (ROOT / "docs" / "install.md").read_text()
    for name, packages in declared.items():
        assert f"| `{name}` | " in guide
        assert len(find_extra(name).packages) == len(packages)


def test_the_line_that_installs_an_extra_works_here(tmp_path: Path) -> None:
    """Its program is there, and takes what it is given: nothing is changed, it only resolves."""
    found = re.fullmatch(r"install it with `(.+)`", install_line("memory"))
    assert found is not None
    assert "wordllama>=0.4.0.post1" in found[1]
    command = found[1].replace(" install ", " install --dry-run --no-deps ", 1)
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_postgresql_without_its_driver_is_named_with_the_line_to_type(tmp_path: Path) -> None:
    done = without("psycopg", "--database-url", "postgresql://127.0.0.1/x", "runs", "list", cwd=tmp_path)
    assert (done.returncode, "extra 'postgres'" in done.stderr) == (3, True), done.stderr
    assert "psycopg[binary]" in done.stderr


def test_codemachine_without_its_parser_is_named_with_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter_javascript", None)
    with pytest.raises(Missing, match="extra 'codemachine'") as error:
        parse(b"module.exports = []", "main.agents.js")
    assert "tree-sitter-javascript" in str(error.value.hint)


def test_memory_without_word_vectors_finds_by_shared_words_and_says_so(tmp_path: Path) -> None:
    absent = "wordllama tokenizers safetensors"
    for text in ("Freeze the clock in tests of the scheduler", "Indexes make slow databases fast"):
        assert without(absent, "memory", "store", text, cwd=tmp_path).returncode == 0
    done = without(absent, "memory", "find", "why is my database so slow", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)[0]["text"].startswith("Indexes"), done.stderr
    assert "wordllama" in done.stderr
