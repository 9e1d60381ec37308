"""How a project is set up and checked: shown, changed, and tried on the untouched base before anything is spent."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Ratchet
from tests.cli.protocol_world import Shop, make_shop, wish
from tests.projects.test_environments import make_wheel
from tests.protocols.world import git

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
WISH = wish("Get ready.\nwrite setup.txt ready", "Write b.\nwrite b.txt good")


@pytest.fixture
def shop(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = make_shop(tmp_path, home)
    monkeypatch.chdir(made.place)
    return made


def commit(shop: Shop, **files: str) -> None:
    for name, text in files.items():
        (shop.place / name.replace("__", ".")).write_text(text)
    git(shop.place, "add", ".")
    git(shop.place, "commit", "-qm", "more")
    git(shop.place, "push", "-q", "origin", "HEAD:main")


@pytest.mark.soak
def test_a_base_whose_checks_cannot_run_stops_before_anything_is_spent_and_leaves_nothing(
    ratchet: Ratchet, shop: Shop
) -> None:
    commit(shop, test_it__py="def test_it(): ...\n")
    assert ratchet("project", "add").code == 0
    added = ratchet(
        "project", "checks", "1", "--remove", "pytest", "--add", "tests=python3 -m no_such_flask_7"
    )
    assert (added.code, "tests (test): python3 -m no_such_flask_7" in added.out) == (0, True)
    stopped = ratchet("protocol", "new", WISH, "--run")
    assert stopped.code == 1
    assert "do not work on the untouched base" in stopped.out
    assert "No module named no_such_flask_7" in stopped.out
    assert "ratchet project checks 1" in stopped.out
    # Nothing was asked of an engine, no branch was made, and nothing was written into the checkout.
    found = ratchet("protocol", "show", "2", "--json").json
    assert (found["status"], found["steps"]) == ("blocked", [])
    assert git(shop.place, "for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/main"
    assert git(shop.place, "status", "--porcelain") == ""
    changed = ratchet(
        "project", "checks", "1", "--remove", "tests", "--add", "look=test -f README.md", "--json"
    )
    assert [each["name"] for each in changed.json["checks"]] == ["look"]
    resumed = ratchet("protocol", "resume", "2")
    assert resumed.code == 0, resumed.err + resumed.out
    # The last of the next commands takes the change into the checkout.
    merge = ratchet("protocol", "show", "2", "--json").json["next"][-1]["command"]
    subprocess.run(shlex.split(merge), check=True)
    assert (shop.place / "b.txt").read_text().strip() == "good"


def test_inside_a_repository_its_project_need_not_be_named(
    ratchet: Ratchet, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ratchet("init").code == 0
    early = ratchet("project", "setup", "--show")
    assert (early.code, "is not a project yet" in early.err, "ratchet project add" in early.err) == (
        2,
        True,
        True,
    )
    assert ratchet("project", "add").code == 0
    assert ratchet("project", "setup", "--show").code == 0
    assert (
        "look (test): test -f README.md"
        in ratchet("project", "checks", "--add", "look=test -f README.md").out
    )
    monkeypatch.chdir(tmp_path)
    outside = ratchet("project", "checks")
    assert (outside.code, "is in no git repository" in outside.err) == (2, True)


@pytest.mark.soak
def test_a_check_that_prints_without_end_on_the_base_blocks_before_anything_is_spent(
    ratchet: Ratchet, shop: Shop
) -> None:
    commit(shop, README__md="A shop\n", flood__sh="echo the database is missing >&2; yes\n")
    assert ratchet("project", "add").code == 0
    assert ratchet("project", "checks", "1", "--add", "tests=bash flood.sh").code == 0
    stopped = ratchet("protocol", "new", WISH, "--run")
    assert stopped.code == 1
    assert "it wrote more output than it may: the database is missing" in stopped.out
    assert ratchet("protocol", "show", "2", "--json").json["status"] == "blocked"


@pytest.mark.soak
def test_what_is_red_before_the_change_is_shown_and_not_blamed_on_it(ratchet: Ratchet, shop: Shop) -> None:
    commit(shop, test_it__py="def test_old(): assert False\n\ndef test_good(): ...\n")
    assert ratchet("project", "add").code == 0
    own = f"pytest={sys.executable} -m pytest -p no:cacheprovider"
    assert ratchet("project", "checks", "1", "--add", own).code == 0
    done = ratchet("protocol", "new", WISH, "--run")
    assert done.code == 0, done.err + done.out
    assert "red before the change, and not blamed on it: pytest" in done.err
    events = ratchet("events", "--run", "2", "--type", "baseline_checked", "--json").lines
    [base] = events
    assert base["data"]["red"] == {"pytest": ["test_it.test_old"]}
    breaks = wish("Get ready.\nwrite setup.txt ready", "Break.\nwrite test_new.py assert False")
    broken = ratchet("protocol", "new", breaks, "--run")
    assert broken.code == 1
    assert "test_new" in broken.out


@pytest.mark.soak
def test_a_project_with_a_dependency_is_set_up_checked_and_changed(
    ratchet: Ratchet, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    make_wheel(shelf, "tinything", "VALUE = 1\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    commit(shop, requirements__txt="tinything\n", test_it__py="import unittest, tinything\n" + UNIT)
    assert ratchet("project", "add").code == 0
    shown = ratchet("project", "setup", "1", "--show")
    assert "python3 -m pip install -r requirements.txt" in shown.out
    assert "not made yet" in shown.out
    made = ratchet("project", "setup", "1")
    assert (made.code, "The environment is made" in made.out) == (0, True), made.err
    done = ratchet("protocol", "new", WISH, "--run")
    assert done.code == 0, done.err + done.out
    assert git(shop.place, "status", "--porcelain") == ""


UNIT = (
    "\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        self.assertEqual(tinything.VALUE, 1)\n"
)
