"""The written scripts, really run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ratchet.projects.assets import write_assets
from ratchet.projects.discovery import ProjectCheck, ProjectFacts, discover_files
from tests.projects.assets.conftest import FAILING, run_script


@pytest.mark.soak
def test_the_scripts_pass_for_a_good_change(written: Path) -> None:
    ready, linted, tested = (run_script(written, name) for name in ("bootstrap", "lint", "test"))
    assert [ready.returncode, linted.returncode, tested.returncode] == [0, 0, 0], tested.stderr
    assert "1 passed" in tested.stdout
    assert "All checks passed" in linted.stdout


def test_a_failing_test_fails_the_script_and_is_named(written: Path) -> None:
    (written / "tests" / "test_sums.py").write_text(FAILING)
    done = run_script(written, "test")
    assert done.returncode == 1
    assert "one and one" in done.stdout
    assert "failed: pytest" in done.stderr


def test_a_finding_of_the_linter_fails_the_script(written: Path) -> None:
    (written / "sums.py").write_text("import os\n")
    assert run_script(written, "lint").returncode == 1


@pytest.mark.parametrize("name", ["typecheck", "build"])
def test_a_kind_without_checks_is_skipped_in_so_many_words(written: Path, name: str) -> None:
    done = run_script(written, name)
    assert done.returncode == 0
    assert done.stdout.startswith("skip: ")


def test_every_check_runs_even_if_one_before_it_failed(tmp_path: Path) -> None:
    facts = ProjectFacts(
        checks=(ProjectCheck("no", ("false",), "test"), ProjectCheck("yes", ("echo", "it's $HOME"), "test"))
    )
    write_assets(tmp_path, facts, provider=None)
    done = run_script(tmp_path, "test")
    assert done.returncode == 1
    assert "it's $HOME\n" in done.stdout
    assert "failed: no" in done.stderr


def test_a_command_that_does_not_exist_fails(tmp_path: Path) -> None:
    write_assets(
        tmp_path, ProjectFacts(checks=(ProjectCheck("gone", ("no-such-program",), "lint"),)), provider=None
    )
    assert run_script(tmp_path, "lint").returncode == 1


def test_a_set_up_that_fails_fails_the_script(tmp_path: Path) -> None:
    write_assets(tmp_path, ProjectFacts(setup=(("false",), ("touch", "reached"))), provider=None)
    assert run_script(tmp_path, "bootstrap").returncode == 1
    assert not (tmp_path / "reached").exists()


def test_what_is_checked_does_not_see_the_webhook_secret(tmp_path: Path) -> None:
    facts = ProjectFacts(checks=(ProjectCheck("env", ("env",), "test"),), setup=(("env",),))
    write_assets(tmp_path, facts, provider=None)
    for name in ("bootstrap", "test"):
        done = run_script(
            tmp_path, name, RATCHET_WEBHOOK_SECRET="hush-1", TASKSGODZILLA_WEBHOOK_TOKEN="hush-2", SEEN="yes"
        )
        assert "SEEN=yes" in done.stdout
        assert "hush" not in done.stdout


def test_a_check_in_a_directory_runs_there(tmp_path: Path) -> None:
    inside = tmp_path / "it's here"
    inside.mkdir()
    (inside / "pyproject.toml").write_text("")
    (inside / "test_it.py").write_text(
        "import os, unittest\n"
        "class Where(unittest.TestCase):\n"
        "    def test_it(self):\n"
        "        self.assertTrue(os.getcwd().endswith('here'))\n"
    )
    write_assets(tmp_path, discover_files(tmp_path), provider=None)
    done = run_script(tmp_path, "test")
    assert done.returncode == 0, done.stderr
    assert "Ran 1 test" in done.stdout + done.stderr


@pytest.mark.soak
def test_an_environment_is_made_where_none_is_active(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("# nothing yet\n")
    (tmp_path / "test_where.py").write_text(
        "import sys, unittest\n"
        "class Where(unittest.TestCase):\n"
        "    def test_it(self):\n"
        "        self.assertTrue(sys.prefix.endswith('.venv'), sys.prefix)\n"
    )
    write_assets(tmp_path, discover_files(tmp_path), provider=None)
    ready = run_script(tmp_path, "bootstrap", VIRTUAL_ENV="", PIP_NO_INDEX="1")
    assert ready.returncode == 0, ready.stdout + ready.stderr
    tested = run_script(tmp_path, "test", VIRTUAL_ENV="")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert (tmp_path / ".venv" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("name", ["bootstrap", "lint", "typecheck", "test", "build", "report"])
def test_every_script_is_executable_and_valid_bash(written: Path, name: str) -> None:
    path = written / "scripts" / "ci" / f"{name}.sh"
    assert os.access(path, os.X_OK)
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0


@pytest.mark.soak
def test_in_ci_what_was_printed_is_kept_for_the_report(written: Path) -> None:
    (written / ".git").mkdir()
    (written / "tests" / "test_sums.py").write_text(FAILING)
    run_script(written, "bootstrap", CI="true")
    run_script(written, "test", CI="true")
    assert "one and one" in (written / ".git" / "ratchet-ci.log").read_text()
