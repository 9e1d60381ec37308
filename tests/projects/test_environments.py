"""The environment of a project: made once by its own set-up, and seen by checks and authors without the network."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ratchet.config.workflow_settings import Projects
from ratchet.judges import Candidate
from ratchet.judges.judge import Deadline
from ratchet.projects.discovery import discover_files
from ratchet.projects.environments import Environment, Environments, SetupFailed
from ratchet.projects.environments.imports import used_by_tests
from ratchet.projects.environments.packages import how_to_reach, make_do, weaker
from ratchet.protocols.qa.checks import CheckRun, run_check
from ratchet.protocols.qa.contract import PlannedCheck
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
        git(self.place, "commit", "-q", "--allow-empty", "-m", "change")
        return git(self.place, "rev-parse", "HEAD")

    def check(self, commit: str, environment: Environment | None) -> CheckRun:
        [ran] = self.checks(commit, environment)
        return ran

    def checks(
        self, commit: str, environment: Environment | None, found: Sequence[PlannedCheck] = ()
    ) -> list[CheckRun]:
        """What each of these checks says of a commit, or each that is found."""
        found = found or [PlannedCheck(each.name, each.argv) for each in discover_files(self.place).checks]
        with self.repository as repository:
            workspace = repository.workspace(commit)
            candidate = Candidate(commit, commit, workspace.path, "nobody")
            return [
                CheckRun(
                    check,
                    asyncio.run(
                        run_check(
                            check,
                            candidate,
                            workspace.path,
                            environment=environment,
                            seconds=240.0,
                            deadline=Deadline(None),
                        )
                    ),
                )
                for check in found
            ]


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
    assert ran.passed, ran.summary
    # The same set-up, another commit: no second environment, and the check sees the change.
    other = shop.commit({"shop.py": "VALUE = 2\n"})
    assert shop.find(other) == environment
    changed = shop.check(other, environment)
    assert not changed.passed
    assert "1 != 2" in changed.summary or "2 != 1" in changed.summary
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


def test_a_set_up_sees_no_other_branch_and_no_stash_and_still_finds_its_version(shop: Shop) -> None:
    script = "git describe --tags --long > described\ngit log --format=%s > history\n"
    script += "git tag > tags\nfor each in $(cat hidden.txt); do git cat-file -e $each && echo $each >> seen; done; :\n"
    shop.commit({"a.txt": "first\n"})
    git(shop.place, "tag", "-a", "-m", "one", "v1")
    git(shop.place, "checkout", "-q", "-b", "private")
    hidden = [shop.commit({"secret.txt": "hunter2\n"}), git(shop.place, "rev-parse", "HEAD:secret.txt")]
    git(shop.place, "tag", "elsewhere")
    git(shop.place, "checkout", "-q", "main")
    (shop.place / "a.txt").write_text("stashed\n")
    git(shop.place, "stash")
    hidden.append(git(shop.place, "rev-parse", "stash@{0}"))
    # In the repository's packs, too, everything lies side by side.
    git(shop.place, "gc", "-q")
    base = shop.commit({"hidden.txt": "\n".join(hidden), "scripts/ci/bootstrap.sh": script})
    environment = shop.make(base)
    assert environment is not None
    left = environment.directory / "left"
    assert (left / "described").read_text() == f"v1-1-g{base[:7]}\n"
    assert (left / "history").read_text().split() == ["change", "change"]
    assert (left / "tags").read_text() == "v1\n"
    assert not (left / "seen").exists()


_ATTACKS = {
    "a monitor of git": "git config core.fsmonitor 'touch {home}/owned; true'",
    "the repository replaced": (
        "rm -rf .git; git init -q; git config core.fsmonitor 'touch {home}/owned; true'; git add -A"
    ),
    "a repository inside": (
        "git init -q inner; git -C inner config core.fsmonitor 'touch {home}/owned; true'; touch inner/x"
    ),
    "a link where what is left goes": "ln -s {home} ../left; echo owned > .bashrc",
    "a link in the place of the record": "ln -s {home}/owned ../environment.json",
    "a link in the place of the checkout": "cd ..; mv tree other; ln -s {home} tree",
    "a link in the place of a cache": "mkdir node_modules; ln -s {home} node_modules/.cache; touch node_modules/x",
    "a pipe that nobody writes": (
        "mkdir -p ../venv/lib/python3.1/site-packages; mkfifo ../venv/lib/python3.1/site-packages/x.pth"
    ),
}


@pytest.mark.parametrize("attack", _ATTACKS.values(), ids=_ATTACKS)
def test_a_set_up_has_nothing_run_read_or_written_outside_of_its_environment(shop: Shop, attack: str) -> None:
    victim = shop.home.parent / "victim"
    victim.mkdir()
    (victim / ".bashrc").write_text("mine\n")
    base = shop.commit({"scripts/ci/bootstrap.sh": f"{attack.format(home=victim)}; :\n"})
    environment = shop.make(base)
    assert environment is not None
    assert [each.name for each in victim.iterdir()] == [".bashrc"]
    assert (victim / ".bashrc").read_text() == "mine\n"
    places = [environment.directory, environment.tree, *environment.mounts.values()]
    places += [environment.directory / "left" / each for each in environment.caches]
    assert not any(each.is_symlink() for each in places)


def test_the_environment_of_a_project_is_for_no_other_and_knows_its_own_build_backend(
    shop: Shop, tmp_path: Path
) -> None:
    project = '[build-system]\nrequires = []\nbuild-backend = "own"\nbackend-path = ["back"]\n'
    files = {"pyproject.toml": project, "back/own.py": "first = 1\n", "shop.py": ""}
    base = shop.commit(files)
    git(tmp_path, "clone", "-q", str(shop.place), str(tmp_path / "copy"))
    twin = Shop(tmp_path / "copy", shop.home)

    def link(of: Shop, commit: str) -> Path:
        with of.repository as repository:
            environments = of._environments(repository)
            recipe = environments.recipe(commit)
            assert recipe is not None
            return environments._link(recipe)

    assert link(shop, base) != link(twin, base)
    assert link(shop, shop.commit({"README": "more\n"})) == link(shop, base)
    assert link(shop, shop.commit({"back/own.py": "second = 2\n"})) != link(shop, base)


def test_what_a_change_builds_is_seen_by_no_other_commit(shop: Shop) -> None:
    helper = "open('../store/built', 'a').write('{0}')\n"
    bootstrap = "python3 buildhelp.py\n"
    base = shop.commit({**FILES, "scripts/ci/bootstrap.sh": bootstrap, "buildhelp.py": helper.format("base")})
    changed = {"requirements.txt": "tinything\n# more\n"}
    poison = shop.commit({**changed, "buildhelp.py": helper.format("poison")})
    victim = shop.commit({**changed, "buildhelp.py": helper.format("victim")})
    quiet = shop.commit({**FILES, "buildhelp.py": helper.format("quiet")})
    with shop.repository as repository:
        environments = replace(shop._environments(repository), trusted=base)
        made = [asyncio.run(environments.of(each)) for each in (poison, victim, quiet, base)]
    built = [each is not None and (each.directory / "store" / "built").read_text() for each in made]
    # One whose manifests are those of the base has the environment that the base makes.
    assert built == ["poison", "victim", "base", "base"]


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
def test_a_set_up_that_hangs_is_heard_and_ends_with_its_command_its_limit_and_its_last_output(
    shop: Shop,
) -> None:
    base = shop.commit({"scripts/ci/bootstrap.sh": "echo Fetching the moon\nsleep 600\n"})
    heard: list[str] = []
    facts = discover_files(shop.place).as_json()
    settings = Projects(setup_seconds=8.0)
    with shop.repository as repository, pytest.raises(SetupFailed) as failed:
        asyncio.run(Environments(shop.home, repository, facts, settings, hear=heard.append).of(base))
    assert heard == ["Fetching the moon"]
    assert "bootstrap.sh` took longer than 8 s\n  Fetching the moon" in str(failed.value)
    assert failed.value.hint == "raise projects.setup_seconds"


def test_a_manager_that_is_missing_is_named_with_what_ci_installs_beside_it(shop: Shop) -> None:
    if shutil.which("dpkg-query") is None:
        pytest.skip("this machine has no packages of Debian")
    base = shop.commit({"a.txt": "", "Dockerfile": "RUN apt-get install -y libno-such-thing-7 dpkg\n"})
    facts = {**discover_files(shop.place).as_json(), "setup": [["no-such-manager-7", "install"]]}
    with shop.repository as repository, pytest.raises(SetupFailed) as failed:
        asyncio.run(Environments(shop.home, repository, facts, Projects()).of(base))
    assert "no-such-manager-7" in str(failed.value)
    assert "lacks: apt-get install libno-such-thing-7;" in (failed.value.hint or "")
    assert "install no-such-manager-7" in (failed.value.hint or "")


@pytest.mark.parametrize(
    ("program", "said", "wanted"),
    [
        ("go", "dial tcp: lookup proxy.example.org: no such host", "GOPROXY"),
        ("cargo", "Could not resolve hostname (Could not resolve host: example.org)", "~/.cargo/config.toml"),
        ("mvn", "[ERROR] Could not transfer artifact a:b:pom:1 from/to central", ".mvn/settings.xml"),
        ("pnpm", "ERR_PNPM_META_FETCH_FAIL getaddrinfo ENOTFOUND registry", "npm_config_registry"),
        ("python3", "Failed to establish a new connection: [Errno 111] Connection refused", "PIP_INDEX_URL"),
        ("go", "go: no such thing", None),
    ],
)
def test_a_registry_that_is_not_reached_is_said_with_where_a_mirror_is_set(
    program: str, said: str, wanted: str | None
) -> None:
    told = how_to_reach(program, said)
    assert (told is None) if wanted is None else (wanted in (told or ""))


def test_the_registry_of_the_user_reaches_the_set_up_and_the_token_beside_it_does_not(
    shop: Shop, tmp_path: Path
) -> None:
    (tmp_path / ".npmrc").write_text(
        "registry=https://mirror.example.org/npm/\n//mirror.example.org/:_authToken=s3\n"
    )
    base = shop.commit({"scripts/ci/bootstrap.sh": "env | grep -i registry; cat ~/.npmrc\nexit 3\n"})
    with pytest.raises(SetupFailed) as failed:
        shop.make(base)
    assert "npm_config_registry=https://mirror.example.org/npm/" in str(failed.value)
    assert "s3" not in str(failed.value)


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


LOCK = """
[[package]]
name = "trio"
version = "0.2"
[[package]]
name = "colorama"
version = "0.4"
markers = "sys_platform == 'win32'"
[[package]]
name = "sister"
version = "1"
[package.source]
type = "directory"
"""


def test_a_link_of_the_project_leads_nothing_of_its_environment_out_of_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "work" / "a").mkdir(parents=True)
    (tmp_path / "work" / "b").symlink_to(tmp_path / "home")
    caches = [f"{each}/node_modules/.cache" for each in "ab"]
    modules = [f"{each}/node_modules" for each in "ab"]
    made = Environment(tmp_path / "env", {}, directories=modules, ignored=caches, caches=caches)
    work = tmp_path / "work"
    own = {target for target, source in made.places_at(work).items() if target == source}
    assert own == {work / caches[0]}


@pytest.mark.parametrize("program", ["poetry", "pdm"])
def test_pip_installs_what_is_locked_where_the_tool_of_the_lock_does_not_work(program: str) -> None:
    found = weaker([program, "install"], LOCK)
    assert found is not None
    [needed], [wished] = found.needed, found.wished
    assert needed[4:] == ("--no-deps", "trio==0.2", "colorama==0.4 ; sys_platform == 'win32'")
    assert wished[4:] == ("--no-deps", "-e", ".")


@pytest.mark.parametrize(
    "said",
    [
        "npm error notarget No matching version found for @acme/lint@^22.2.5.",
        "npm error 404  '@acme/lint@^22.2.5' is not in this registry.",
        "ERR_PNPM_NO_MATCHING_VERSION  No matching version found for @acme/lint@^22.2.5",
        'error Couldn\'t find any versions for "@acme/lint" that matches "^22.2.5"',
        "YN0082: │ @acme/lint@npm:^22.2.5: No candidates found",
    ],
)
def test_of_a_package_for_work_that_the_registry_lacks_an_older_version_is_taken(
    said: str, tmp_path: Path
) -> None:
    file = tmp_path.resolve() / "package.json"
    package = {"dependencies": {"ms": "2"}, "devDependencies": {"@acme/lint": "^22.2.5", "tape": "5"}}
    file.write_text(json.dumps(package))
    done = make_do(said, file)
    assert done == "@acme/lint@^22.2.5 is not in the registry: an older version was taken"
    assert json.loads(file.read_text())["devDependencies"] == {"@acme/lint": "<=22.2.5", "tape": "5"}
    assert make_do(said, file) == "@acme/lint@<=22.2.5 is not in the registry: it was left out"
    assert json.loads(file.read_text()) == {**package, "devDependencies": {"tape": "5"}}
    assert make_do(said, file) is None
    assert make_do("No matching version found for ms@2", file) is None


def test_a_file_that_is_a_link_is_not_changed(tmp_path: Path) -> None:
    elsewhere = tmp_path.resolve() / "elsewhere.json"
    elsewhere.write_text('{"devDependencies": {"tape": "5"}}')
    (tmp_path.resolve() / "package.json").symlink_to(elsewhere)
    assert make_do("No matching version found for tape@5", tmp_path.resolve() / "package.json") is None
    assert elsewhere.read_text() == '{"devDependencies": {"tape": "5"}}'


@pytest.mark.parametrize(
    ("argv", "less"),
    [
        ("npm install --legacy-peer-deps", "npm install --legacy-peer-deps --ignore-scripts"),
        ("pnpm install --frozen-lockfile", "pnpm install --frozen-lockfile --ignore-scripts"),
        ("yarn install --immutable", "yarn install --immutable --mode=skip-build"),
        ("yarn install --immutable --mode=skip-build", None),
    ],
)
def test_packages_whose_own_scripts_fail_are_installed_without_them(argv: str, less: str | None) -> None:
    found = weaker(argv.split())
    assert (None if found is None else " ".join(found.needed[0])) == less


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
