"""The environment of a project: made once by its own set-up, and seen by checks and authors without the network."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ratchet.config.protocol_settings import Projects
from ratchet.judges import Candidate
from ratchet.judges.deadline import Deadline
from ratchet.projects.discovery import discover_files
from ratchet.projects.environments import Environment, Environments, SetupFailed
from ratchet.projects.environments.fallback import weaker
from ratchet.projects.environments.imports import used_by_tests
from ratchet.protocols.qa.check_plan import Check
from ratchet.protocols.qa.check_run import Ran, run_check
from ratchet.workspaces import Repository
from tests.projects.repositories import git
from tests.waiting import eventually

TEST = "import unittest, tinything\nimport shop\n\nclass T(unittest.TestCase):\n    def test_it(self):\n"
TEST += "        self.assertEqual(shop.VALUE, tinything.VALUE)\n"


def make_wheel(folder: Path, name: str, source: str) -> None:
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", source)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


@dataclass(frozen=True)
class Shop:
    """A repository whose test needs a package that nobody has but a shelf."""

    place: Path
    home: Path

    @property
    def repository(self) -> Repository:
        return Repository.open(self.place)

    def make(self, commit: str) -> Environment | None:
        with self.repository as repository:
            return asyncio.run(self._environments(repository).of(commit))

    def find(self, commit: str) -> Environment | None:
        with self.repository as repository:
            return self._environments(repository).find(commit)

    def _environments(self, repository: Repository) -> Environments:
        facts = discover_files(self.place).as_json()
        return Environments(self.home, repository, facts, Projects())

    def commit(self, files: dict[str, str]) -> str:
        for name, text in files.items():
            path = self.place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git(self.place, "add", "-A")
        git(self.place, "commit", "-qm", "change")
        return git(self.place, "rev-parse", "HEAD")

    def check(self, commit: str, environment: Environment | None) -> Ran:
        [check] = [Check(each.name, each.argv) for each in discover_files(self.place).checks]
        with self.repository as repository:
            workspace = repository.workspace(commit)
            told = run_check(
                check,
                Candidate(commit, commit, workspace.path, "nobody"),
                workspace.path,
                environment=environment,
                seconds=120.0,
                deadline=Deadline(None),
            )
            return Ran(check, asyncio.run(told))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    make_wheel(shelf, "tinything", "VALUE = 1\n")
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    place = tmp_path / "shöp"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    return Shop(place, tmp_path / "home")


FILES = {"requirements.txt": "tinything\n", "shop.py": "VALUE = 1\n", "tests/test_shop.py": TEST}


def test_checks_have_what_the_set_up_installed_and_see_the_candidate(shop: Shop) -> None:
    base = shop.commit(FILES)
    assert not shop.check(base, None).passed
    environment = shop.make(base)
    assert environment is not None
    ran = shop.check(base, environment)
    assert ran.passed, ran.told
    # The same set-up, another commit: no second environment, and the check sees the change.
    other = shop.commit({"shop.py": "VALUE = 2\n"})
    assert shop.find(other) == environment
    changed = shop.check(other, environment)
    assert not changed.passed
    assert "1 != 2" in changed.told or "2 != 1" in changed.told
    assert git(shop.place, "status", "--porcelain") == ""


def test_a_set_up_sees_its_checkout_and_nothing_of_the_home_or_the_working_tree(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(shop.place, shop.place / ".ratchet")
    script = 'git describe --tags > described\ncat "$PWD"/.env > seen || :\n'
    for secret in (".env", ".ratchet/secret.key", ".git/config", "bin/npm"):
        script += f"cat {shop.place / secret} >> seen || :\n"
    base = shop.commit({".gitignore": ".ratchet/\n.env\nbin/\n", "scripts/ci/bootstrap.sh": script})
    git(shop.place, "tag", "v1")
    (shop.place / ".env").write_text("DB_PASSWORD=hunter2\n")
    # A program in the working tree does not show the tree as that program's installation.
    (shop.place / "bin").mkdir()
    (shop.place / "bin" / "npm").write_text("#!/bin/sh\n")
    (shop.place / "bin" / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shop.place}/bin:{os.environ['PATH']}")
    shop.home.mkdir()
    (shop.home / "secret.key").write_text("the key")
    environment = shop.make(base)
    assert environment is not None
    left = environment.directory / "left"
    assert (left / "described").read_text() == "v1\n"
    assert (left / "seen").read_text() == "#!/bin/sh\n"
    assert shop.place not in environment.shown


@pytest.mark.soak
def test_a_set_up_that_fails_says_what_was_printed_and_leaves_nothing(shop: Shop) -> None:
    base = shop.commit({**FILES, "requirements.txt": "no-such-thing==7\n"})
    with pytest.raises(SetupFailed) as failed:
        shop.make(base)
    assert "python3 -m pip install -r requirements.txt" in str(failed.value)
    assert "No matching distribution found for no-such-thing==7" in str(failed.value)
    assert "ratchet project setup" in (failed.value.hint or "")
    assert [each.name for each in (shop.home / "environments").iterdir() if each.suffix != ".lock"] == []


@pytest.mark.soak
def test_two_processes_make_one_environment_and_a_killed_one_leaves_nothing_half_made(shop: Shop) -> None:
    base = shop.commit(FILES)
    code = (
        "from pathlib import Path\nfrom tests.projects.test_environments import Shop\n"
        f"made = Shop(Path({str(shop.place)!r}), Path({str(shop.home)!r})).make({base!r})\nprint(made.directory)"
    )
    root = shop.home / "environments"
    dying = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
    eventually(lambda: any(root.glob("*/venv")))
    dying.kill()
    dying.wait()
    assert not any(each.is_symlink() for each in root.iterdir())
    both = [
        subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    said = {each.communicate()[0] for each in both}
    assert [each.returncode for each in both] == [0, 0]
    assert len(said) == 1
    assert sum(each.is_symlink() for each in root.iterdir()) == 1


@pytest.mark.parametrize(
    ("argv", "needed", "wished"),
    [
        ("python3 -m pip install -r a.txt -e .[test]", ["-e ."], ["-r a.txt", "-e .[test]"]),
        ("python3 -m pip install -e . --group dev", ["-e ."], ["--group dev"]),
    ],
)
def test_what_cannot_be_installed_at_once_is_installed_in_parts(
    argv: str, needed: list[str], wished: list[str]
) -> None:
    found = weaker(argv.split())
    assert found is not None
    assert [" ".join(each[4:]) for each in found.needed] == needed
    assert [" ".join(each[4:]) for each in found.wished] == wished


def test_pip_installs_a_project_whose_own_tool_cannot() -> None:
    tried = [("poetry", "install", "--no-interaction", "--all-extras")]
    while (found := weaker(tried[-1])) is not None:
        tried += found.needed
    assert [" ".join(each) for each in tried[1:]] == [
        "poetry install --no-interaction",
        "python3 -m pip install -e .",
    ]


def test_what_tests_import_is_found_and_only_what_is_well_known() -> None:
    files: dict[str, Any] = {
        "src/shop/__init__.py": b"",
        "tests/test_a.py": b"import yaml, shop, trio, os, evil_thing\n",
        "tests/test_b.py": b"import pytest\n@pytest.mark.asyncio\nasync def test_x(mocker): ...\n",
    }
    assert used_by_tests(files, files.__getitem__) == {
        "pytest": "pytest",
        "pytest_asyncio": "pytest-asyncio",
        "pytest_mock": "pytest-mock",
        "trio": "trio",
        "yaml": "pyyaml",
    }
