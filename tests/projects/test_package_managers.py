"""Projects of every package manager, set up by the real program and checked without the network."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ratchet.config.workflow_settings import Projects
from ratchet.projects.environments import Environments
from ratchet.protocols.qa.contract import PlannedCheck
from tests.projects.repositories import git
from tests.projects.test_environments import Shop

GROUP = "[dependency-groups]\ndev = ['pytest']\n"
POETRY = "[tool.poetry]\npackage-mode = false\n[tool.poetry.group.dev.dependencies]\npytest = '*'\n"
PYTHON = {
    "shop.py": "VALUE = 1\n",
    "tests/test_shop.py": "import iniconfig, shop\n\ndef test_it():\n    assert shop.VALUE == 1\n",
}
NODE = {
    # Tools such as nyc keep files there, and a package that builds writes its output.
    "test.js": "const fs = require('fs'); fs.mkdirSync('node_modules/.cache/tool', {recursive: true})\n"
    "require('assert').strictEqual(require('ms')('1s'), require('./shop.js').VALUE)\n",
    "shop.js": "exports.VALUE = 1000\n",
    ".gitignore": "node_modules\n.yarn\n.pnp.*\n",
}
RUST = "pub const VALUE: i32 = {};\n\n#[test]\nfn it() {{\n    assert_eq!(VALUE, 1);\n}}\n"
GO = "package shop\n\nconst Value = {}\n"
GO_TEST = """package shop

import "testing"

func TestIt(t *testing.T) {
\tif Value != 1 {
\t\tt.Fatal(Value)
\t}
}
"""
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>shop</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope>
    </dependency>
  </dependencies>
</project>
"""
# What Debian's packages of Maven's plugins bring, instead of a registry.
DEBIAN = Path("/usr/share/maven-repo")
SETTINGS = f"""<settings><mirrors><mirror>
  <id>debian</id><mirrorOf>*</mirrorOf><url>{DEBIAN.as_uri()}</url>
</mirror></mirrors></settings>
"""
JAVA = "package shop;\npublic class Shop {{ public static final int VALUE = {}; }}\n"
JAVA_TEST = """package shop;
public class ShopTest {
    @org.junit.Test public void it() { org.junit.Assert.assertEquals(1, Shop.VALUE); }
}
"""
MAIN = "src/main/java/shop/Shop.java"


@dataclass(frozen=True)
class Kind:
    """A project, the command that writes its lock file, and a change that its tests must refuse."""

    files: dict[str, str]
    broken: dict[str, str]
    lock: str = ""
    program: str = "python3"


def python(more: str, lock: str) -> Kind:
    project = (
        "[project]\nname = 'shop'\nversion = '1'\nrequires-python = '>=3.9'\ndependencies = ['iniconfig']\n"
    )
    return Kind({**PYTHON, "pyproject.toml": project + more}, {"shop.py": "VALUE = 2\n"}, lock)


def declared(name: str, text: str) -> Kind:
    """Tests that no file name tells of, but only a runner's settings."""
    files = {
        name: text,
        "shop.py": "VALUE = 1\n",
        "look.py": "import iniconfig, shop\n\nassert shop.VALUE == 1\n",
    }
    return Kind(files, {"shop.py": "VALUE = 2\n"})


def node(lock: str, files: dict[str, str] | None = None, **more: str) -> Kind:
    about = {"name": "shop", "version": "1.0.0", "dependencies": {"ms": "2.1.3"}, **more}
    package = json.dumps({**about, "scripts": {"test": "node test.js"}})
    npm = "npm exec --yes --package "
    return Kind(
        {**NODE, "package.json": package, **(files or {})},
        {"shop.js": "exports.VALUE = 1\n"},
        lock if lock.startswith("npm") else npm + lock,
        "npm",
    )


_BERRY = "@yarnpkg/cli-dist@4.18.1 -- yarn install --mode=update-lockfile"
KINDS = {
    "uv": python(GROUP, "pip uv lock"),
    "pdm": python(GROUP, "pip pdm[locked] lock"),
    "pipenv": Kind(
        {**PYTHON, "Pipfile": "[packages]\niniconfig = '*'\n[dev-packages]\npytest = '*'\n"},
        {"shop.py": "VALUE = 2\n"},
        "pip pipenv lock",
    ),
    "npm": node("npm install --package-lock-only"),
    "pnpm": node("pnpm -- pnpm install --lockfile-only"),
    "pnpm-9": node("pnpm@9.8.0 -- pnpm install --lockfile-only", packageManager="pnpm@9.8.0"),
    "yarn-classic": node("yarn@1 -- yarn install --no-progress"),
    "yarn-berry": node(_BERRY, {".yarnrc.yml": "nodeLinker: node-modules\n"}, packageManager="yarn@4.18.1"),
    "yarn-plug-and-play": node(_BERRY),
    "tox": declared(
        "tox.ini", "[tox]\nskipsdist = true\n[testenv]\ndeps = iniconfig\ncommands = python look.py\n"
    ),
    "nox": declared(
        "noxfile.py",
        "import nox\n\n@nox.session\ndef tests(session):\n"
        "    session.install('iniconfig')\n    session.run('python', 'look.py', *session.posargs)\n",
    ),
    "cargo": Kind(
        {
            "Cargo.toml": "[package]\nname = 'shop'\nversion = '0.1.0'\nedition = '2021'\n",
            "src/lib.rs": RUST.format(1),
            ".gitignore": "target\n",
        },
        {"src/lib.rs": RUST.format(2)},
        "cargo generate-lockfile",
        "cargo",
    ),
    "go": Kind(
        {"go.mod": "module example.org/shop\n\ngo 1.18\n", "shop.go": GO.format(1), "shop_test.go": GO_TEST},
        {"shop.go": GO.format(2)},
        program="go",
    ),
    "maven": Kind(
        {
            "pom.xml": POM,
            MAIN: JAVA.format(1),
            "src/test/java/shop/ShopTest.java": JAVA_TEST,
            ".gitignore": "target\n",
            ".mvn/settings.xml": SETTINGS,
            ".mvn/maven.config": "-s.mvn/settings.xml\n",
        },
        {MAIN: JAVA.format(2)},
        program="mvn",
    ),
}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    place = tmp_path / "shop"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    return Shop(place, tmp_path / "home")


def lock(shop: Shop, command: str) -> None:
    """Write the lock file as a person would, with nothing else left."""
    words = command.split()
    if words[:1] == ["pip"]:
        tools = shop.place.parent / "tools"
        subprocess.run([sys.executable, "-m", "venv", tools], check=True)
        subprocess.run([tools / "bin" / "python", "-m", "pip", "install", "-q", words[1]], check=True)
        words = [str(tools / "bin" / words[1].partition("[")[0]), *words[2:]]
    if words:
        done = subprocess.run(words, cwd=shop.place, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{command} does not work here: {done.stdout[-500:]}{done.stderr[-500:]}")
    for left in ("node_modules", ".venv", ".yarn"):
        shutil.rmtree(shop.place / left, ignore_errors=True)


@pytest.mark.soak
@pytest.mark.parametrize("name", KINDS)
def test_a_project_is_set_up_by_its_own_manager_and_checked_offline(name: str, shop: Shop) -> None:
    kind = KINDS[name]
    if shutil.which(kind.program) is None or (name == "maven" and not (DEBIAN / "junit").is_dir()):
        pytest.skip(f"{kind.program} or what it needs is not installed")
    shop.commit(kind.files)
    lock(shop, kind.lock)
    base = shop.commit({})
    environment = shop.make(base)
    assert environment is not None
    assert [*environment.notes] == []
    ran = shop.checks(base, environment)
    assert ran
    assert all(each.passed for each in ran), [each.summary for each in ran]
    broken = shop.commit(kind.broken)
    assert shop.find(broken) == environment
    assert not shop.checks(broken, environment)[0].passed


@pytest.mark.soak
def test_what_poetry_has_locked_is_installed_by_pip_where_poetry_does_not_work(shop: Shop) -> None:
    """The lock is older than the project, which Poetry refuses."""
    packages = {"iniconfig": "2.0.0", "packaging": "24.2", "pluggy": "1.5.0", "pytest": "8.3.4"}
    lines = [f'[[package]]\nname = "{name}"\nversion = "{version}"\n' for name, version in packages.items()]
    old = '[metadata]\nlock-version = "2.1"\npython-versions = ">=3.9"\ncontent-hash = "old"\n'
    base = shop.commit({**python(POETRY, "").files, "poetry.lock": "\n".join([*lines, old])})
    environment = shop.make(base)
    assert environment is not None
    assert ["python3", "-m", "pip", "install", "--no-deps", *(f"{a}=={b}" for a, b in packages.items())] in [
        list(each) for each in environment.commands
    ]
    assert shop.check(base, environment).passed


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "command", "python"),
    [
        ("tox", "tox run --notest -e py", ".tox/py/bin/python"),
        ("nox", "nox --install-only", ".nox/tests/bin/python"),
    ],
)
def test_a_set_up_may_be_the_runner_itself(name: str, command: str, python: str, shop: Shop) -> None:
    """As a person settles it, with a check that uses what the runner has made."""
    base = shop.commit({**KINDS[name].files, ".gitignore": ".tox\n.nox\n"})
    check = {"name": "look", "argv": [python, "look.py"], "kind": "test"}
    facts = {"stack": ["python"], "setup": [command.split()], "checks": [check]}
    with shop.repository as repository:
        environment = asyncio.run(Environments(shop.home, repository, facts, Projects()).of(base))
    assert environment is not None
    [ran] = shop.checks(base, environment, (PlannedCheck("look", (python, "look.py")),))
    assert ran.passed, ran.summary
