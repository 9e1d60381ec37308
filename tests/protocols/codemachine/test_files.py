"""Nothing outside of a workspace is read, whatever its files say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ratchet.protocols.codemachine import WorkspaceInvalid, prompt_files, read_workspace
from tests.protocols.codemachine.workspaces import PACKAGE, PLAIN, write

SECRET = "a key of somebody else"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    target = tmp_path / "outside"
    target.mkdir()
    (target / "secret.md").write_text(SECRET)
    return target


def agent(path: str) -> dict[str, str]:
    return {"config/main.agents.js": f"module.exports = [{{ id: 'a', promptPath: '{path}' }}];"}


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.md",
        "../../outside/secret.md",
        "/etc/hostname",
        "/outside/secret.md",
        "a/../../outside/secret.md",
    ],
)
def test_a_path_that_leads_out_is_not_found(tmp_path: Path, outside: Path, path: str) -> None:
    workspace = read_workspace(write(tmp_path / "work", agent(path)))
    with pytest.raises(WorkspaceInvalid, match="does not exist"):
        prompt_files(workspace)


def test_a_link_that_leads_out_is_refused(tmp_path: Path, outside: Path) -> None:
    root = write(tmp_path / "work", agent("prompts/a.md"))
    (root / "prompts").symlink_to(outside)
    (root / "direct.md").symlink_to(outside / "secret.md")
    for path in ("prompts/secret.md", "direct.md"):
        workspace = read_workspace(write(root, agent(path)))
        with pytest.raises(WorkspaceInvalid, match="leads out of the workspace") as caught:
            prompt_files(workspace)
        assert SECRET not in str(caught.value)


def test_a_configuration_that_is_a_link_out_is_refused(tmp_path: Path, outside: Path) -> None:
    (outside / "main.agents.js").write_text("module.exports = [];")
    root = write(tmp_path / "work", {"config/x": ""})
    (root / "config" / "main.agents.js").symlink_to(outside / "main.agents.js")
    with pytest.raises(WorkspaceInvalid, match="leads out"):
        read_workspace(root)


def test_a_link_inside_of_the_workspace_is_followed(tmp_path: Path) -> None:
    root = write(tmp_path, {**agent("prompts/link.md"), "prompts/real.md": "Do it."})
    (root / "prompts" / "link.md").symlink_to("real.md")
    assert "Do it." in prompt_files(read_workspace(root))["prompts/00-a.md"]


def test_a_link_to_itself_is_no_file(tmp_path: Path) -> None:
    root = write(tmp_path, agent("loop.md"))
    (root / "loop.md").symlink_to("loop.md")
    with pytest.raises(WorkspaceInvalid, match="does not exist"):
        prompt_files(read_workspace(root))


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    root = write(tmp_path, agent("pipe.md"))
    os.mkfifo(root / "pipe.md")
    with pytest.raises(WorkspaceInvalid, match="not a file"):
        prompt_files(read_workspace(root))


def test_a_placeholder_cannot_fetch_a_file_from_outside(tmp_path: Path, outside: Path) -> None:
    files = {
        **agent("a.md"),
        "a.md": "Here: {stolen}",
        "config/placeholders.js": "module.exports = { packageDir: { stolen: '../outside/secret.md' } };",
    }
    with pytest.raises(WorkspaceInvalid, match="does not exist"):
        prompt_files(read_workspace(write(tmp_path / "work", files)))


def test_a_prompt_that_is_too_long_or_not_text_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path, {**agent("a.md"), "a.md": "x" * 300_000})
    with pytest.raises(WorkspaceInvalid, match="longer than"):
        prompt_files(read_workspace(root))
    (root / "a.md").write_bytes(b"\xff\xfe")
    with pytest.raises(WorkspaceInvalid, match="not UTF-8"):
        prompt_files(read_workspace(root))


def test_a_workspace_is_found_by_the_project_or_by_its_folder(tmp_path: Path) -> None:
    root = write(tmp_path, PLAIN)
    by_project, by_folder = read_workspace(root), read_workspace(root / ".codemachine")
    assert (
        [agent.id for agent in by_project.agents]
        == [agent.id for agent in by_folder.agents]
        == ["plan", "build"]
    )
    assert prompt_files(by_project) == prompt_files(by_folder)


def test_the_folder_alone_does_not_read_the_project_around_it(tmp_path: Path) -> None:
    files = {**PLAIN, "prompts/outer.md": SECRET}
    files[".codemachine/config/main.agents.js"] = (
        "export default [{ id: 'a', promptPath: '../prompts/outer.md' }];"
    )
    root = write(tmp_path, files)
    assert SECRET in prompt_files(read_workspace(root))["prompts/00-a.md"]
    with pytest.raises(WorkspaceInvalid, match="does not exist"):
        prompt_files(read_workspace(root / ".codemachine"))


@pytest.mark.parametrize("name", ["nowhere", "file", "empty"])
def test_what_is_no_workspace_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    with pytest.raises(WorkspaceInvalid) as caught:
        read_workspace(tmp_path / name)
    assert caught.value.hint


def test_a_package_of_workflows_is_a_workspace_too(tmp_path: Path) -> None:
    workspace = read_workspace(write(tmp_path, PACKAGE))
    assert workspace.workflow is not None
    assert workspace.specification == "A house with a door."
