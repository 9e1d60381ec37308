"""Who runs the CI, and which checks it reports for every change."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.projects.discovery import Facts, discover_files


def with_workflow(tmp_path: Path, text: str, name: str = "ci.yml") -> Facts:
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
