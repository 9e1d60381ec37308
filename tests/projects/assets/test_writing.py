"""Assets are written where they are missing, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ratchet.kernel import RatchetError
from ratchet.projects.assets import asset_files, commit_assets, write_assets
from ratchet.projects.discovery import ProjectCheck, ProjectFacts, discover_files
from ratchet.workspaces import Repository
from tests.workspaces.conftest import files_of, fsck, git

SCRIPTS = [f"scripts/ci/{name}.sh" for name in ("bootstrap", "report", "lint", "typecheck", "test", "build")]
FACTS = ProjectFacts(
    stack=("python",), checks=(ProjectCheck("unittest", ("python3", "-m", "unittest"), "test"),)
)


def test_all_that_is_missing_is_created(tree: Path) -> None:
    written = write_assets(tree, FACTS, provider="github")
    assert sorted(written.created) == sorted([*SCRIPTS, ".github/workflows/ci.yml"])
    assert all((tree / path).is_file() for path in written.created)
    assert (written.kept, written.refused) == ((), ())
    assert written.required_checks == ("test",)


def test_without_a_provider_there_is_no_ci_file(tree: Path) -> None:
    written = write_assets(tree, FACTS, provider=None)
    assert sorted(written.created) == sorted(SCRIPTS)
    assert written.required_checks == ()


def test_writing_again_changes_nothing(tree: Path) -> None:
    write_assets(tree, FACTS, provider="gitlab")
    before = files_of(tree)
    written = write_assets(tree, ProjectFacts(), provider="gitlab")
    assert written.created == ()
    assert files_of(tree) == before


def test_what_is_there_is_kept_byte_for_byte(tree: Path) -> None:
    (tree / "scripts" / "ci").mkdir(parents=True)
    (tree / "scripts" / "ci" / "lint.sh").write_bytes(b"echo mine\n")
    (tree / ".gitlab-ci.yml").symlink_to("nowhere")
    written = write_assets(tree, FACTS, provider="gitlab")
    assert (tree / "scripts" / "ci" / "lint.sh").read_bytes() == b"echo mine\n"
    assert sorted(written.kept) == [".gitlab-ci.yml", "scripts/ci/lint.sh"]
    assert not (tree / "nowhere").exists()


def test_a_repository_with_a_workflow_gets_no_second_one(tree: Path) -> None:
    (tree / ".github" / "workflows").mkdir(parents=True)
    (tree / ".github" / "workflows" / "checks.yaml").write_text("on: push\n")
    assert ".github/workflows/ci.yml" in write_assets(tree, FACTS, provider="github").kept


def test_a_script_of_the_repository_is_not_called_by_a_script_of_its_own_name(tree: Path) -> None:
    (tree / "scripts" / "ci").mkdir(parents=True)
    (tree / "scripts" / "ci" / "test.sh").write_text("echo mine\n")
    assert "scripts/ci/test.sh" not in asset_files(discover_files(tree), None)


@pytest.mark.parametrize("linked", ["scripts", "scripts/ci", ".github"])
def test_a_link_out_of_the_tree_is_not_followed(tree: Path, tmp_path: Path, linked: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tree / linked).parent.mkdir(parents=True, exist_ok=True)
    (tree / linked).symlink_to(outside, target_is_directory=True)
    written = write_assets(tree, FACTS, provider="github")
    assert list(outside.iterdir()) == []
    assert written.refused == tuple(
        path for path in asset_files(FACTS, "github") if path.startswith(linked + "/")
    )


def test_a_file_in_the_place_of_a_folder_is_left_alone(tree: Path) -> None:
    (tree / "scripts").write_text("a file\n")
    assert len(write_assets(tree, FACTS, provider=None).refused) == len(SCRIPTS)
    assert (tree / "scripts").read_text() == "a file\n"


def test_a_tree_that_is_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(RatchetError, match=r"gone/scripts/ci/bootstrap\.sh cannot be written") as raised:
        write_assets(tmp_path / "gone", FACTS, provider=None)
    assert raised.value.hint


def test_what_a_dead_process_left_unfinished_is_replaced(tree: Path) -> None:
    (tree / "scripts" / "ci").mkdir(parents=True)
    (tree / "scripts" / "ci" / ".test.sh.ratchet-new").write_text("half")
    write_assets(tree, FACTS, provider=None)
    assert sorted(path.name for path in (tree / "scripts" / "ci").iterdir()) == sorted(
        path.rpartition("/")[2] for path in SCRIPTS
    )


def test_the_workflow_of_github_runs_each_script_and_reports_its_end(tree: Path) -> None:
    write_assets(tree, FACTS, provider="github")
    workflow = yaml.load((tree / ".github/workflows/ci.yml").read_text(), Loader=yaml.BaseLoader)
    assert list(workflow["on"]) == ["push", "workflow_dispatch"]
    assert list(workflow["jobs"]) == ["lint", "typecheck", "test", "build"]
    for name, job in workflow["jobs"].items():
        ran = [step["run"] for step in job["steps"] if "run" in step]
        assert ran[:2] == ["bash scripts/ci/bootstrap.sh", f"bash scripts/ci/{name}.sh"]
        assert ran[2] == f'bash scripts/ci/report.sh "${{{{ job.status }}}}" {name}'
        last = job["steps"][-1]
        assert last["if"] == "always()"
        # Only the report is given the secret.
        assert [step for step in job["steps"] if "secrets." in str(step)] == [last]


@pytest.mark.parametrize(("stack", "image"), [(("go",), "golang:1"), ((), "buildpack-deps:stable")])
def test_the_pipeline_of_gitlab_runs_each_script_and_reports_its_end(
    tree: Path, stack: tuple[str, ...], image: str
) -> None:
    write_assets(tree, ProjectFacts(stack=stack), provider="gitlab")
    pipeline = yaml.safe_load((tree / ".gitlab-ci.yml").read_text())
    assert pipeline["default"]["image"] == image
    assert pipeline["default"]["before_script"] == ["bash scripts/ci/bootstrap.sh"]
    assert pipeline["default"]["after_script"] == [
        'bash scripts/ci/report.sh "$CI_JOB_STATUS" "$CI_JOB_NAME"'
    ]
    jobs = {name: job["script"] for name, job in pipeline.items() if name not in ("default", "stages")}
    assert jobs == {name: [f"bash scripts/ci/{name}.sh"] for name in ("lint", "typecheck", "test", "build")}


@pytest.mark.parametrize("provider", ["github", "gitlab"])
def test_the_checks_that_written_ci_reports_are_found_again(tree: Path, provider: str) -> None:
    facts = discover_files(tree)
    written = write_assets(tree, facts, provider=provider)
    again = discover_files(tree)
    assert again.ci_provider == provider
    assert again.required_checks == written.required_checks == ("lint", "test")


def test_a_written_script_does_not_replace_what_it_was_made_from(written: Path) -> None:
    assert [check.name for check in discover_files(written).checks] == ["pytest", "ruff"]


def test_a_written_script_counts_once_a_person_has_changed_it(written: Path) -> None:
    script = written / "scripts" / "ci" / "build.sh"
    script.write_text(script.read_text() + "make everything\n")
    assert ("bash", "scripts/ci/build.sh") in [check.argv for check in discover_files(written).checks]


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    with Repository.create(tmp_path / "repository.git") as made:
        yield made


def test_only_missing_assets_are_committed_with_their_modes(repository: Repository) -> None:
    base = repository.commit_files(
        {"README.md": b"hello\n", "scripts/ci/lint.sh": b"echo mine\n"}, parent=None, message="first"
    )
    commit = commit_assets(repository, base, FACTS, "github")
    assert commit is not None
    changed = sorted(change.path for change in repository.changes(base, commit))
    assert changed == sorted({*SCRIPTS, ".github/workflows/ci.yml"} - {"scripts/ci/lint.sh"})
    modes = {path: oct(entry.mode) for path, entry in repository.list_files(commit).items()}
    assert modes["scripts/ci/test.sh"] == "0o100755"
    assert modes[".github/workflows/ci.yml"] == "0o100644"
    assert repository.read_file(commit, "scripts/ci/lint.sh") == b"echo mine\n"
    assert git(repository.path, "rev-parse", f"{commit}^") == base
    assert fsck(repository.path) == ""


def test_a_commit_that_has_them_all_gets_no_further_one(repository: Repository) -> None:
    base = repository.commit_files({"README.md": b"hello\n"}, parent=None, message="first")
    commit = commit_assets(repository, base, FACTS, "gitlab")
    assert commit is not None
    assert commit_assets(repository, commit, FACTS, "gitlab") is None


def test_a_committed_link_or_file_in_the_way_is_not_replaced(repository: Repository) -> None:
    base = repository.commit_files({"scripts": b"a file\n"}, parent=None, message="first")
    assert commit_assets(repository, base, FACTS, None) is None
