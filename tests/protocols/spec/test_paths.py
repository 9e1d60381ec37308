"""The same questions put to a commit and to a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.protocols.spec import (
    Exists,
    check_paths,
    files_below,
    files_of,
    find_path,
    is_step_file,
    prompt_version,
    read_protocol_spec,
    spec_from_files,
    spec_hash,
)
from ratchet.workspaces import Repository
from tests.protocols.spec.specs import protocol, step

ROOT = ".protocols/0001-x"
FILES = {f"{ROOT}/a.md": b"A", "prompts/b.md": b"B", "prompts/a.md": b"other"}


@pytest.fixture(params=["commit", "directory"])
def exists(request: pytest.FixtureRequest, tmp_path: Path) -> Exists:
    if request.param == "directory":
        for path, content in FILES.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content)
        return files_below(tmp_path)
    with Repository.create(tmp_path / "repo.git") as repository:
        commit = repository.commit_files(FILES, parent=None, message="first")
        return files_of(repository.list_files(commit))


def test_prompts_are_looked_for_in_the_protocol_first_then_in_the_repository(exists: Exists) -> None:
    assert find_path("a.md", ROOT, exists) == f"{ROOT}/a.md"
    assert find_path("./prompts/a.md", ROOT, exists) == "prompts/a.md"
    assert find_path("c.md", ROOT, exists) is None
    assert find_path("prompts", ROOT, exists) is None


def test_prompts_that_are_not_there_are_problems(exists: Exists) -> None:
    spec = read_protocol_spec(
        protocol(
            step("a"),
            step("b", prompt_ref="prompts/b.md", qa={"policy": "full", "prompt": "prompts/qa.md"}),
            step("c"),
        )
    )

    assert check_paths(spec, exists, root=ROOT) == [
        "step b: qa.prompt 'prompts/qa.md' does not exist",
        "step c: prompt_ref 'c.md' does not exist",
    ]


def test_a_link_out_of_the_directory_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "out.md").symlink_to(tmp_path / "secret.md")

    exists = files_below(inside)

    assert not exists("out.md")
    assert not exists("../secret.md")


def test_steps_are_made_of_files_whose_names_begin_with_two_digits() -> None:
    spec = spec_from_files(["10-b.md", "00-setup.md", "plan.md", "1-x.md", "02-a.txt", "sub/03-c.md"])

    assert spec is not None
    assert [each.called for each in spec.steps] == ["00-setup", "10-b"]
    assert [each.prompt_ref for each in spec.steps] == ["00-setup.md", "10-b.md"]
    assert {each.qa.policy for each in spec.steps} == {"full"}
    assert [each.kind for each in spec.steps] == ["setup", "work"]


def test_without_step_files_there_is_no_spec() -> None:
    assert spec_from_files(["plan.md"]) is None
    assert not is_step_file("plan.md")


def test_a_hash_does_not_depend_on_how_a_spec_is_written() -> None:
    data = protocol(step("a", metadata={"x": 1, "ä": "ö"}))
    turned = {key: data[key] for key in reversed(data)}
    turned["steps"] = [dict(reversed(data["steps"][0].items()))]

    assert spec_hash(data) == spec_hash(turned) == spec_hash(read_protocol_spec(data))
    assert spec_hash(data) != spec_hash(protocol(step("b")))
    assert len(spec_hash(data)) == 12


def test_a_prompt_has_the_first_digits_of_its_sha256() -> None:
    assert prompt_version(b"") == "e3b0c44298fc"
    assert prompt_version(None) == "missing"
