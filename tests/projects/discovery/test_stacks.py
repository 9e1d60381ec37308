"""What the files of a repository tell about its stacks and its checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ratchet.projects.discovery import ProjectFacts, SourceTree, discover_files, manager_package, read_facts


def made(tmp_path: Path, files: dict[str, str]) -> ProjectFacts:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return discover_files(tmp_path)


def commands(facts: ProjectFacts, kind: str) -> list[str]:
    return [" ".join(check.argv) for check in facts.checks if check.kind == kind]


def package(**scripts: str) -> str:
    return json.dumps({"scripts": scripts})


TEST = "def test_it():\n    pass\n"
UNITTEST = "import unittest\nclass It(unittest.TestCase):\n    def test_it(self):\n        pass\n"


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"pytest.ini": "", "tests/test_a.py": UNITTEST}, "python3 -m pytest"),
        ({"tox.ini": "[pytest]\n", "tests/test_a.py": UNITTEST}, "python3 -m pytest"),
        ({"setup.cfg": "[tool:pytest]\n", "tests/test_a.py": UNITTEST}, "python3 -m pytest"),
        ({"requirements-dev.txt": "PyTest>=8\n", "tests/test_a.py": UNITTEST}, "python3 -m pytest"),
        (
            {"pyproject.toml": "[dependency-groups]\ndev = ['pytest']\n", "a_test.py": UNITTEST},
            "python3 -m pytest",
        ),
        (
            {"pyproject.toml": "[tool.poetry.group.dev.dependencies]\npytest='*'\n", "test_a.py": UNITTEST},
            "python3 -m pytest",
        ),
        ({"src/pkg/tests/test_a.py": TEST, "setup.py": ""}, "python3 -m pytest"),
        ({"test_a.py": UNITTEST}, "python3 -m unittest discover"),
        ({"tests/test_a.py": UNITTEST, "a.py": ""}, "python3 -m unittest discover -s tests"),
        (
            {"tests/test_a.py": UNITTEST, "tests/__init__.py": "", "a.py": ""},
            "python3 -m unittest discover -s tests -t .",
        ),
    ],
)
def test_the_tests_of_python_are_run_by_what_the_project_uses(
    tmp_path: Path, files: dict[str, str], wanted: str
) -> None:
    facts = made(tmp_path, files)
    assert facts.stack == ("python",)
    assert commands(facts, "test") == [wanted]


def test_pytest_without_a_test_file_is_no_check_but_a_note(tmp_path: Path) -> None:
    facts = made(tmp_path, {"pyproject.toml": "[tool.pytest.ini_options]\n"})
    assert commands(facts, "test") == []
    assert facts.notes == ("pytest is set up, but no test file was found",)


@pytest.mark.parametrize(
    ("files", "kind", "wanted"),
    [
        ({"pyproject.toml": "[tool.ruff]\n"}, "lint", ["python3 -m ruff check ."]),
        ({"setup.py": "", "ruff.toml": ""}, "lint", ["python3 -m ruff check ."]),
        ({"setup.cfg": "[flake8]\n"}, "lint", ["python3 -m flake8"]),
        ({"setup.py": "", ".flake8": ""}, "lint", ["python3 -m flake8"]),
        ({"pyproject.toml": "[tool.ruff.format]\n"}, "format", ["python3 -m ruff format --check ."]),
        ({"pyproject.toml": "[tool.black]\n"}, "format", ["python3 -m black --check ."]),
        ({"pyproject.toml": "[tool.mypy]\nfiles = ['src']\n"}, "types", ["python3 -m mypy"]),
        ({"setup.py": "", "mypy.ini": "[mypy]\nfiles = src\n"}, "types", ["python3 -m mypy"]),
        ({"setup.py": "", "requirements.txt": "mypy\n"}, "types", ["python3 -m mypy ."]),
        (
            {"setup.py": "", ".pre-commit-config.yaml": "repos:\n- hooks:\n  - id: mypy\n"},
            "types",
            ["python3 -m mypy ."],
        ),
        ({"setup.py": "", "requirements.txt": "ruffus\nmypy-extensions\n"}, "lint", []),
        ({"setup.py": "", "requirements.txt": "ruffus\nmypy-extensions\n"}, "types", []),
    ],
)
def test_linters_and_type_checkers_of_python_are_found_where_they_are_set_up(
    tmp_path: Path, files: dict[str, str], kind: str, wanted: list[str]
) -> None:
    assert commands(made(tmp_path, files), kind) == wanted


def test_a_target_of_make_that_installs_something_is_no_check(tmp_path: Path) -> None:
    recipe = "test:\n\tuv pip install -e .\n\tpytest\nlint:\n\truff check .\n"
    facts = made(tmp_path, {"Makefile": recipe, "setup.py": "", "test_a.py": "import pytest\n"})
    assert [check.name for check in facts.checks] == ["pytest", "make-lint"]


@pytest.mark.parametrize(
    ("files", "setup"),
    [
        ({"requirements.txt": "x\n"}, [["-r", "requirements.txt"]]),
        (
            {
                "pyproject.toml": "[build-system]\n[project.optional-dependencies]\ntest = ['x']\ndocs = ['y']\n"
            },
            [["-e", ".[test]"]],
        ),
        ({"pyproject.toml": "[project]\ndependencies = ['x>=1', '--evil']\n"}, [["x>=1"]]),
        (
            {"pyproject.toml": "[dependency-groups]\ndev = ['x']\n"},
            [["--upgrade", "pip>=25.1"], ["--group", "dev"]],
        ),
        ({"setup.py": ""}, [["-e", "."]]),
        (
            {
                "setup.py": "",
                "tox.ini": "[testenv]\ndeps =\n  pytest>=8\n  py38: old\n  {env:MORE}\n  -r{toxinidir}/x\n",
            },
            [["-e", ".", "pytest>=8"]],
        ),
        (
            {
                "setup.py": "",
                "noxfile.py": "def tests(session):\n    session.install('trio', '-e', '.', f'x{1}')\n",
            },
            [["-e", ".", "trio"]],
        ),
        (
            {"setup.py": "", "requirements/tests.txt": "", "requirements/docs.txt": ""},
            [["-r", "requirements/tests.txt", "-e", "."]],
        ),
        (
            {
                "setup.py": "",
                ".github/workflows/ci.yml": "- run: pip install --upgrade pip\n- run: pip install -r x.txt 'trio>=0.2'",
                "Dockerfile": "RUN pip install trio httpbin && make\n",
            },
            [["-e", ".", "trio>=0.2", "trio", "httpbin"]],
        ),
        (
            {
                "pyproject.toml": "[build-system]\n[project.optional-dependencies]\nall = ['x']\ndocs = ['y']\n",
                ".gitlab-ci.yml": "test:\n  script:\n    - pip install -e .[all]\n",
            },
            [["-e", ".[all]"]],
        ),
        (
            {
                "setup.py": "",
                "tox.ini": "[testenv]\ndeps = pytest\n",
                "Dockerfile": "RUN pip install gunicorn\n",
            },
            [["-e", ".", "pytest"]],
        ),
        ({"a.py": ""}, []),
    ],
)
def test_an_environment_of_python_is_filled_by_pip(
    tmp_path: Path, files: dict[str, str], setup: list[list[str]]
) -> None:
    wanted = tuple(("python3", "-m", "pip", "install", *words) for words in setup)
    assert made(tmp_path, files).setup == wanted


@pytest.mark.parametrize(
    ("lock", "program"),
    [("uv.lock", "uv"), ("poetry.lock", "poetry"), ("pdm.lock", "pdm"), ("Pipfile.lock", "pipenv")],
)
def test_a_lock_file_of_python_chooses_the_program(tmp_path: Path, lock: str, program: str) -> None:
    assert made(tmp_path, {"pyproject.toml": "", lock: ""}).setup[1][0] == program


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        (
            "tox.ini",
            "[testenv]\ncommands =\n  coverage run -m checks {posargs}\n  {toxworkdir}/x\n",
            ["coverage run -m checks"],
        ),
        (
            "tox.ini",
            "[testenv]\ncommands = {envpython} {toxinidir}/check.py {posargs:-v all}\n",
            ["python3 ./check.py -v all"],
        ),
        ("tox.toml", "[env_run_base]\ncommands = [['stestr', 'run', '{posargs}']]\n", ["stestr run"]),
        (
            "noxfile.py",
            "def tests(session):\n    session.run('stestr', 'run', *session.posargs)\n    session.run(x)\n",
            ["stestr run"],
        ),
    ],
)
def test_what_tox_and_nox_run_tests_a_project_whose_tests_are_not_found(
    tmp_path: Path, name: str, text: str, wanted: list[str]
) -> None:
    facts = made(tmp_path, {"setup.py": "", name: text})
    assert commands(facts, "test") == wanted


def test_what_fetches_things_is_for_ci_alone(tmp_path: Path) -> None:
    facts = made(
        tmp_path,
        {
            "pyproject.toml": "[build-system]\n",
            "tox.ini": "[tox]\n",
            ".pre-commit-config.yaml": "repos: []\n",
        },
    )
    assert facts.checks == ()
    assert [check.name for check in facts.network_checks] == ["tox", "wheel", "pre-commit"]


@pytest.mark.parametrize(
    ("files", "program", "setup"),
    [
        ({}, "npm", ("npm", "install")),
        ({"package-lock.json": "{}"}, "npm", ("npm", "ci")),
        ({"pnpm-lock.yaml": ""}, "pnpm", ("pnpm", "install", "--frozen-lockfile")),
        ({"yarn.lock": ""}, "yarn", ("yarn", "install", "--frozen-lockfile")),
        ({"yarn.lock": "", ".yarnrc.yml": ""}, "yarn", ("yarn", "install", "--immutable")),
        ({"bun.lock": ""}, "bun", ("bun", "install", "--frozen-lockfile")),
    ],
)
def test_the_scripts_of_node_are_run_by_the_manager_of_the_lock_file(
    tmp_path: Path, files: dict[str, str], program: str, setup: tuple[str, ...]
) -> None:
    scripts = package(test="jest", lint="eslint .", build="tsc", typecheck="tsc --noEmit", dev="vite")
    facts = made(tmp_path, {"package.json": scripts, **files})
    assert facts.stack == ("node",)
    assert facts.setup == (setup,)
    assert {check.kind: check.argv for check in facts.checks} == {
        "test": (program, "run", "test"),
        "lint": (program, "run", "lint"),
        "types": (program, "run", "typecheck"),
        "build": (program, "run", "build"),
    }


def test_the_test_that_npm_init_writes_is_none(tmp_path: Path) -> None:
    placeholder = 'echo "Error: no test specified" && exit 1'
    assert made(tmp_path, {"package.json": package(test=placeholder)}).checks == ()


@pytest.mark.parametrize(
    ("scripts", "wanted"),
    [
        ({"pretest": "npm run lint", "test": "tape"}, "npm run test"),
        (
            {"posttest": "npx npm@'>= 10.2' audit --production", "test": "tape"},
            "npm run test --ignore-scripts",
        ),
        ({"prepare": "husky", "test": "tape"}, "npm run test"),
        ({"prepare": "npm run build", "test": "tape"}, "sh -c npm run prepare && exec npm run test"),
    ],
)
def test_a_test_of_node_neither_needs_the_network_nor_sees_what_the_base_built(
    tmp_path: Path, scripts: dict[str, str], wanted: str
) -> None:
    assert commands(made(tmp_path, {"package.json": package(**scripts)}), "test") == [wanted]


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"package.json": '{"packageManager": "yarn@4.1.0+sha224.953c8"}'}, "@yarnpkg/cli-dist@4.1.0"),
        ({"package.json": '{"packageManager": "yarn@1.22.0"}'}, "yarn@1.22.0"),
        ({"yarn.lock": "# yarn lockfile v1\n"}, "yarn@1"),
        ({"yarn.lock": "# Do not edit\n\n__metadata:\n  version: 8\n"}, "@yarnpkg/cli-dist"),
        ({"package.json": '{"packageManager": "pnpm@9.8.0"}', "pnpm-lock.yaml": ""}, "pnpm@9.8.0"),
        ({"pnpm-lock.yaml": "lockfileVersion: '6.0'\n"}, "pnpm@8"),
        ({"pnpm-lock.yaml": "lockfileVersion: '9.0'\n"}, "pnpm"),
    ],
)
def test_the_manager_is_the_one_that_the_project_asks_for(
    tmp_path: Path, files: dict[str, str], wanted: str
) -> None:
    made(tmp_path, files)
    assert manager_package("pnpm" if "pnpm" in wanted else "yarn", SourceTree(tmp_path)) == wanted


def test_typescript_is_checked_without_a_script(tmp_path: Path) -> None:
    text = json.dumps({"devDependencies": {"typescript": "5"}})
    facts = made(tmp_path, {"package.json": text, "tsconfig.json": "{}"})
    assert commands(facts, "types") == ["npx --no-install tsc --noEmit"]


@pytest.mark.parametrize(
    ("files", "stack", "test"),
    [
        ({"go.mod": "module a\n"}, "go", "go test ./..."),
        ({"Cargo.toml": "[package]\n"}, "rust", "cargo test"),
        ({"pom.xml": "<project/>"}, "java", "mvn --batch-mode test"),
        ({"pom.xml": "<project/>", "mvnw": ""}, "java", "sh ./mvnw --batch-mode test"),
        ({"build.gradle.kts": ""}, "java", "gradle test"),
        ({"build.gradle": "", "gradlew": ""}, "java", "sh ./gradlew test"),
    ],
)
def test_compiled_languages_are_tested_by_their_own_tools(
    tmp_path: Path, files: dict[str, str], stack: str, test: str
) -> None:
    facts = made(tmp_path, files)
    assert facts.stack == (stack,)
    assert commands(facts, "test") == [test]
    assert commands(facts, "build")


def test_a_target_of_make_counts_more_than_a_guess_and_a_script_of_ci_more_than_both(tmp_path: Path) -> None:
    files = {
        "pytest.ini": "",
        "test_a.py": TEST,
        "ruff.toml": "",
        "mypy.ini": "[mypy]\n",
        "Makefile": "CHECK := x\n.PHONY: test lint\ntest lint: setup\n\tpytest\nbuild-all:\n",
        "scripts/ci/test.sh": "pytest -q\n",
        "scripts/ci/bootstrap.sh": "true\n",
    }
    facts = made(tmp_path, files)
    assert {check.kind: check.argv for check in facts.checks} == {
        "test": ("bash", "scripts/ci/test.sh"),
        "lint": ("make", "lint"),
        "types": ("python3", "-m", "mypy", "."),
    }
    assert facts.setup == (("bash", "scripts/ci/bootstrap.sh"),)


def test_the_parts_of_a_repository_are_checked_in_their_own_directories(tmp_path: Path) -> None:
    files = {
        "backend/pyproject.toml": "[tool.pytest.ini_options]\n",
        "backend/tests/test_a.py": TEST,
        "frontend/package.json": package(test="jest"),
        "node_modules/other/package.json": package(test="x"),
        "scripts/tool.py": "",
    }
    facts = made(tmp_path, files)
    assert facts.stack == ("python", "node")
    assert [check.name for check in facts.checks] == ["backend:pytest", "frontend:npm-test"]
    assert facts.checks[1].argv[-4:] == ("frontend", "npm", "run", "test")


def test_an_empty_repository_has_nothing(tmp_path: Path) -> None:
    assert discover_files(tmp_path) == ProjectFacts()


def test_facts_survive_the_ledger(tmp_path: Path) -> None:
    facts = made(
        tmp_path, {"pyproject.toml": "[build-system]\n[tool.ruff]\n", "test_a.py": TEST, ".gitlab-ci.yml": ""}
    )
    assert read_facts(json.loads(json.dumps(facts.as_json()))) == facts


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"stack": "python", "checks": {"name": "x"}, "setup": [None, [], "x", [1]], "ci_provider": "jenkins"},
        {
            "checks": [
                None,
                {"name": "", "argv": ["x"], "kind": "test"},
                {"name": "x", "argv": [], "kind": "test"},
            ]
        },
        {"checks": [{"name": "x", "argv": ["x"], "kind": "magic"}], "notes": 5, "identity": {"name": "x"}},
    ],
)
def test_facts_that_make_no_sense_are_left_out(data: dict[str, object]) -> None:
    assert read_facts(data) == ProjectFacts()
