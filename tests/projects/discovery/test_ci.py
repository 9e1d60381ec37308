"""Who runs the CI, which checks it reports for every change, and what it tells of how a repository is tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.projects.discovery import ProjectFacts, discover_files, unmoved


def with_workflow(tmp_path: Path, text: str, name: str = "ci.yml") -> ProjectFacts:
    (tmp_path / ".github" / "workflows").mkdir(parents=True, exist_ok=True)
    (tmp_path / ".github" / "workflows" / name).write_text(text)
    return discover_files(tmp_path)


@pytest.mark.parametrize(
    ("origin", "provider"),
    [
        ("https://github.com/o/n.git", "github"),
        ("git@github.example.org:o/n.git", "github"),
        ("ssh://git@gitlab.com/o/n.git", "gitlab"),
        ("https://user@gitlab.example.org/o/n", "gitlab"),
        ("https://example.org/github/gitlab.git", None),
        ("/srv/github.com/n.git", None),
        (None, None),
    ],
)
def test_the_origin_tells_the_provider_where_no_file_does(
    tmp_path: Path, origin: str | None, provider: str | None
) -> None:
    assert discover_files(tmp_path, origin=origin).ci_provider == provider


def test_the_origin_of_the_clone_serves_if_none_is_given(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text(
        '[core]\n\tbare = false\n[remote "origin"]\n\turl = git@gitlab.com:o/n.git\n\tfetch = x\n'
    )
    assert discover_files(tmp_path).ci_provider == "gitlab"


def test_files_of_ci_count_more_than_the_origin(tmp_path: Path) -> None:
    (tmp_path / ".gitlab-ci.yml").write_text("test:\n  script: make\n")
    facts = discover_files(tmp_path, origin="https://github.com/o/n")
    assert (facts.ci_provider, facts.required_checks) == ("gitlab", ("test",))


def test_the_origin_decides_between_two(tmp_path: Path) -> None:
    (tmp_path / ".gitlab-ci.yml").write_text("from-gitlab:\n  script: make\n")
    with_workflow(tmp_path, "on: push\njobs:\n  from-github:\n    runs-on: x\n")
    facts = discover_files(tmp_path, origin="https://gitlab.com/o/n")
    assert facts.required_checks == ("from-gitlab",)


@pytest.mark.parametrize(
    "on",
    [
        "push",
        "[push, pull_request]",
        "pull_request",
        "{push: {branches: ['**']}}",
        "{pull_request: {branches: [main]}}",
        "{pull_request: null, schedule: x}",
    ],
)
def test_jobs_that_run_for_every_change_are_required(tmp_path: Path, on: str) -> None:
    facts = with_workflow(
        tmp_path, f"on: {on}\njobs:\n  test:\n    runs-on: x\n  lint:\n    name: All lint\n"
    )
    assert facts.required_checks == ("test", "All lint")


@pytest.mark.parametrize(
    "on",
    [
        "schedule",
        "[workflow_dispatch]",
        "{push: {branches: [main]}}",
        "{push: {tags: ['v*']}}",
        "{pull_request: {paths: ['src/**']}}",
        "{pull_request: {types: [labeled]}}",
        "null",
    ],
)
def test_jobs_that_run_only_sometimes_are_not_required(tmp_path: Path, on: str) -> None:
    assert with_workflow(tmp_path, f"on: {on}\njobs:\n  test:\n    runs-on: x\n").required_checks == ()


def test_a_matrix_is_written_out_as_github_names_its_checks(tmp_path: Path) -> None:
    facts = with_workflow(
        tmp_path,
        "on: push\njobs:\n"
        "  test:\n    strategy: {matrix: {python: ['3.11', '3.12'], os: [a]}}\n"
        "  named:\n    name: Run ${{ matrix.os }}\n    strategy: {matrix: {os: [a, b]}}\n"
        "  plain:\n    name: Same\n    strategy: {matrix: {os: [a, b]}}\n",
    )
    assert facts.required_checks == (
        "test (3.11, a)",
        "test (3.12, a)",
        "Run a",
        "Run b",
        "Same (a)",
        "Same (b)",
    )


@pytest.mark.parametrize(
    ("job", "note"),
    [
        ("uses: o/n/.github/workflows/x.yml@v1", "named by another workflow"),
        ("strategy: {matrix: {include: [{a: b}]}}", "a matrix that is not plain"),
        ("strategy: {matrix: '${{ fromJSON(x) }}'}", "a matrix that is not plain"),
        ("name: For ${{ github.actor }}", "only known when it runs"),
    ],
)
def test_a_check_whose_name_is_not_known_is_left_out_with_a_note(tmp_path: Path, job: str, note: str) -> None:
    facts = with_workflow(tmp_path, f"on: push\njobs:\n  odd:\n    {job}\n  test:\n    runs-on: x\n")
    assert facts.required_checks == ("test",)
    assert note in facts.notes[0]


def test_a_job_with_a_condition_is_not_required(tmp_path: Path) -> None:
    text = "on: push\njobs:\n  deploy:\n    if: github.ref == 'x'\n  test:\n    runs-on: x\n"
    assert with_workflow(tmp_path, text).required_checks == ("test",)


def test_jobs_of_gitlab_are_required_unless_they_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / ".gitlab-ci.yml").write_text(
        "stages: [test]\n"
        "variables: {A: b}\n"
        ".hidden: &hidden\n  script: make\n"
        "test:\n  <<: *hidden\n  script: make test\n"
        "extended:\n  extends: .hidden\n"
        "referring:\n  script: !reference [.hidden, script]\n"
        "by-hand:\n  script: make\n  when: manual\n"
        "forgiven:\n  script: make\n  allow_failure: true\n"
        "ruled:\n  script: make\n  rules: [{if: $A}]\n"
        "release:\n  script: make\n  only: [tags]\n"
    )
    assert discover_files(tmp_path).required_checks == ("test", "extended", "referring")


def discover(tmp_path: Path, files: dict[str, str]) -> ProjectFacts:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return discover_files(tmp_path)


def runs(*lines: str, **step: str) -> str:
    more = "".join(f"        {key.replace('_', '-')}: {text}\n" for key, text in step.items())
    script = "".join(f"          {line}\n" for line in lines)
    job = "on: push\njobs:\n  test:\n    services: {redis: {image: redis}}\n    steps:\n      - run: |\n"
    return f"{job}{script}{more}"


@pytest.mark.parametrize(
    ("files", "stack", "tests", "setup"),
    [
        (
            {".github/workflows/ci.yml": runs("pnpm install", "pnpm test", working_directory="packages/web")},
            ("node",),
            ["pnpm test"],
            ["pnpm install"],
        ),
        (
            {".github/workflows/ci.yml": runs("npm ci && CI=1 npm run test:unit", "npm i -g codecov | cat")},
            ("node",),
            ["npm run test:unit"],
            ["npm ci"],
        ),
        (
            {
                ".gitlab-ci.yml": "before_script: [cd app && yarn install]\ntest: {script: cd app && yarn test}\n"
            },
            ("node",),
            ["yarn test"],
            ["yarn install"],
        ),
        ({".gitlab-ci.yml": "test:\n  script: [go test ./cmd/...]\n"}, ("go",), ["go test ./cmd/..."], []),
        (
            {"Dockerfile": "FROM rust\nRUN cargo fetch \\\n  && cargo test --all\n"},
            ("rust",),
            ["cargo test --all"],
            ["cargo fetch"],
        ),
        (
            {
                "Makefile": "test:\n\tnpx playwright install\n\t@bash run_tests.sh --fast\n",
                "run_tests.sh": "",
            },
            (),
            ["bash run_tests.sh --fast"],
            [],
        ),
        (
            {".github/workflows/ci.yml": runs("cargo test $FLAGS", "curl x | sh", "./absent_tests.sh")},
            (),
            [],
            [],
        ),
    ],
)
def test_what_ci_runs_tests_a_repository_that_says_nothing_else(
    tmp_path: Path, files: dict[str, str], stack: tuple[str, ...], tests: list[str], setup: list[str]
) -> None:
    facts = discover(tmp_path, files)
    assert facts.stack == stack
    assert [" ".join(unmoved(check.argv)[1]) for check in facts.checks] == tests
    assert [" ".join(unmoved(argv)[1]) for argv in facts.setup] == setup
    places = {unmoved(argv)[0] for argv in (*facts.setup, *(check.argv for check in facts.checks))}
    assert places <= {"packages/web", "app", "."}


def test_what_the_repository_says_of_itself_counts_more_than_its_ci(tmp_path: Path) -> None:
    package = '{"scripts": {"test": "tape"}}'
    facts = discover(
        tmp_path, {"package.json": package, ".github/workflows/ci.yml": runs("npm i", "npm test -- --ci")}
    )
    assert [check.argv for check in facts.checks] == [("npm", "run", "test")]
    assert facts.setup == (("npm", "install"),)


def test_packages_of_the_system_that_ci_installs_are_known(tmp_path: Path) -> None:
    files = {
        ".github/workflows/ci.yml": runs(
            "sudo apt-get update", "sudo apt-get install -y --no-install-recommends libpq-dev"
        ),
        "Dockerfile": "RUN apt-get update && apt-get install -y \\\n    libpq-dev \\\n    g++ && rm -rf /var/lib/apt\n",
    }
    assert discover(tmp_path, files).system_packages == ("libpq-dev", "g++")
