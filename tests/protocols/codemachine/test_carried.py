"""Imported protocols are carried out like any other, with their prompts, outputs and loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.kernel import RunStatus
from ratchet.ledger.projects import get_project
from ratchet.projects.clone import open_clone
from ratchet.protocols.actions import start_protocol
from ratchet.protocols.codemachine import import_workspace
from ratchet.runtime import Worker
from tests.protocols.codemachine.workspaces import write
from tests.protocols.world import World
from tests.waiting import eventually

NAME = "0001-shed"
SHED = {
    "config/main.agents.js": """module.exports = [
      { id: 'walls', promptPath: 'prompts/walls.md' },
      { id: 'roof', promptPath: 'prompts/roof.md' },
    ];""",
    "config/modules.js": """module.exports = [
      { id: 'look', promptPath: 'prompts/look.md', behavior: { type: 'loop', action: 'stepBack' } },
    ];""",
    "workflow/shed.workflow.js": """export default { steps: [
      resolveStep('walls', { executeOnce: true }),
      resolveStep('roof'),
      resolveModule('look', { loopSteps: 1, loopMaxIterations: 1 }),
    ] };""",
    "prompts/walls.md": "write walls.txt four",
    "prompts/roof.md": "write roof.txt one",
    "prompts/look.md": "Look at it.",
    "inputs/specifications.md": "A shed.\nwrite wish.txt shed",
}


def carried(world: World, worker: Worker, root: Path, **files: str) -> int:
    """The run of an imported workspace, once nothing more happens by itself."""
    work = write(root, {**SHED, **{f"prompts/{name}.md": text for name, text in files.items()}})
    with world.ledger.read() as tx:
        project = get_project(tx, world.project_id)
    open_clone(world.runtime, project).close()
    run_id = import_workspace(
        world.runtime, world.project_id, protocol_name=NAME, workspace_path=work, actor="test"
    )
    with world.ledger.write(actor="test") as tx:
        start_protocol(tx, world.runtime, run_id)
    eventually(lambda: world.stands(run_id))
    return run_id


@pytest.mark.soak
def test_every_step_gets_its_prompt_with_the_specification_and_leaves_its_answer(
    world: World, worker: Worker, tmp_path: Path
) -> None:
    run_id = carried(world, worker, tmp_path / "work")
    assert world.protocol(run_id).status is RunStatus.COMPLETED, world.protocol(run_id).reason
    files = world.git("ls-tree", "-r", "--name-only", NAME).split()
    assert {"walls.txt", "roof.txt", "wish.txt"} <= set(files)
    answers = [f".protocols/{NAME}/outputs/{id}.md" for id in ("walls", "roof", "look")]
    assert set(answers) <= set(files)
    assert "done with 01-roof" in world.git("show", f"{NAME}:{answers[1]}")


@pytest.mark.soak
def test_a_check_that_fails_loops_back_over_what_is_not_done_once(
    world: World, worker: Worker, tmp_path: Path
) -> None:
    run_id = carried(world, worker, tmp_path / "work", look="write look.txt bad")
    told = world.events(run_id)
    assert (told.count("loop_decision"), told.count("loop_limit_reached")) == (1, 1)
    assert world.protocol(run_id).status is RunStatus.BLOCKED
    subjects = world.git("log", "--format=%s", NAME).splitlines()
    assert [sum(name in subject for subject in subjects) for name in (": walls ", ": roof ")] == [1, 2]
