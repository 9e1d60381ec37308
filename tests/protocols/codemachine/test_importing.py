"""A workspace becomes a planned protocol with a branch of its own, or nothing at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from ratchet.kernel import Conflict, Misuse, NotFound, RunStatus, StepStatus
from ratchet.ledger import EventFilter
from ratchet.ledger.events import latest
from ratchet.ledger.projects import change_project, get_project
from ratchet.ledger.protocols import list_protocols
from ratchet.ledger.runs import list_runs
from ratchet.ledger.tables import events, protocol_steps, protocols, runs, steps
from ratchet.projects.address import CloneMissing
from ratchet.projects.clone import open_clone
from ratchet.protocols.codemachine import WorkspaceInvalid, import_workspace
from ratchet.protocols.spec import prompt_version
from tests.protocols.codemachine.workspaces import PACKAGE, PLAIN, write
from tests.protocols.world import World, git

NAME = "0007-shed"
ROOT = f".protocols/{NAME}"


class Importer:
    """Imports workspaces into the project of a world, which is cloned."""

    def __init__(self, world: World) -> None:
        self.world = world
        with open_clone(world.runtime, self.project) as clone:
            self.clone = clone.path

    @property
    def project(self) -> Any:
        with self.world.ledger.read() as tx:
            return get_project(tx, self.world.project_id)

    def __call__(self, path: Path | str, name: str = NAME, **more: Any) -> int:
        return import_workspace(
            self.world.runtime,
            self.world.project_id,
            protocol_name=name,
            workspace_path=path,
            actor="test",
            **more,
        )

    def branches(self) -> list[str]:
        return git(self.clone, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    def show(self, path: str, commit: str = NAME) -> str:
        return git(self.clone, "show", f"{commit}:{ROOT}/{path}")

    def nothing_is_left(self) -> bool:
        with self.world.ledger.read() as tx:
            return (
                not list_protocols(tx) and not list_runs(tx, kind="protocol") and NAME not in self.branches()
            )


@pytest.fixture
def importer(world: World) -> Importer:
    return Importer(world)


@pytest.mark.soak
def test_an_import_is_a_planned_protocol_with_spec_steps_and_template(
    importer: Importer, tmp_path: Path
) -> None:
    world = importer.world
    run_id = importer(write(tmp_path / "work", PLAIN), description="A shed.")
    protocol, steps = world.protocol(run_id), world.steps(run_id)
    assert (protocol.status, protocol.spec_status, protocol.number) == (RunStatus.PLANNED, "valid", 7)
    assert protocol.template_config["template"]["template"] == "spec-to-code"
    assert protocol.base_commit == world.git("rev-parse", "main")
    assert [(step.name, step.status) for step in steps] == [
        ("00-plan", StepStatus.PENDING),
        ("01-build", StepStatus.PENDING),
    ]
    assert steps[0].engine_id == "codex"
    assert (steps[0].policy[0]["behavior"], steps[0].policy[0]["module_id"]) == ("loop", "iteration-checker")
    assert world.events(run_id)[-1] == "codemachine_imported"
    with world.ledger.read() as tx:
        [told] = latest(tx.connection, where=EventFilter(run_id=run_id, type="codemachine_imported"), limit=1)
    assert told.actor == "test"
    assert told.data["spec_hash"] == protocol.spec_hash


def test_its_branch_is_one_commit_on_the_base_with_everything_that_steps_need(
    importer: Importer, tmp_path: Path
) -> None:
    run_id = importer(write(tmp_path / "work", PACKAGE), description="A shed.")
    assert git(importer.clone, "rev-parse", f"{NAME}^") == importer.world.git("rev-parse", "main")
    assert git(importer.clone, "log", "-1", "--format=%s", NAME) == (
        f"feat(protocol): add plan for {NAME} [protocol-0007/00]"
    )
    changed = git(importer.clone, "diff", "--name-only", f"{NAME}^", NAME).split()
    prompts = [step.spec["prompt_ref"] for step in importer.world.steps(run_id)]
    assert {f"{ROOT}/{name}" for name in ("plan.md", "context.md", "log.md", *prompts)} < set(changed)
    assert all(path.startswith(f"{ROOT}/") for path in changed)
    assert "Lay stones" in importer.show("prompts/02-lay.md")
    plan = importer.show("plan.md")
    version = prompt_version((importer.show("prompts/02-lay.md") + "\n").encode())
    assert "A shed." in plan
    assert f"`prompts/02-lay.md` ({version})" in plan


def test_a_workspace_in_the_repository_is_named_by_its_path_there(importer: Importer) -> None:
    write(importer.clone / "tools", PLAIN)
    run_id = importer("tools", inside=True)
    assert importer.world.protocol(run_id).template_source["workspace"] == str(
        (importer.clone / "tools").resolve()
    )


def test_a_workspace_elsewhere_may_be_refused(importer: Importer) -> None:
    for path in ("../elsewhere", "/etc"):
        with pytest.raises(WorkspaceInvalid, match="not in the repository"):
            importer(path, inside=True)
    assert importer.nothing_is_left()


INVALID = [
    ("config/main.agents.js", "export default [{ id: 'a' }];", "agent 'a' has no promptPath"),
    (
        "config/modules.js",
        "export default [{ id: 'iteration-checker', behavior: 'loop' }];",
        "must be an object",
    ),
    ("config/main.agents.js", "export default [{ id: 'a', promptPath: 'gone.md' }];", "does not exist"),
    (
        "config/modules.js",
        "export default [{ id: 'iteration-checker', behavior: { type: 'loop', skip: [0] } }];",
        "no spec that can be carried out: step 00-plan: loop iteration-checker skips its own step",
    ),
    (
        "config/modules.js",
        "export default [{ id: 'iteration-checker', behavior: { type: 'trigger' } }];",
        "no agent",
    ),
    ("template.json", "{", "not JSON"),
]


def test_a_workspace_that_cannot_be_carried_out_leaves_nothing_but_the_reason(
    importer: Importer, tmp_path: Path
) -> None:
    for number, (file, text, told) in enumerate(INVALID):
        work = write(tmp_path / f"work-{number}", {**PLAIN, f".codemachine/{file}": text})
        with pytest.raises(WorkspaceInvalid) as caught:
            importer(work)
        assert told in str(caught.value)
        assert caught.value.http_status == 400
        with importer.world.ledger.read() as tx:
            [failed] = latest(tx.connection, where=EventFilter(type="codemachine_import_failed"), limit=1)
        assert (failed.project_id, failed.run_id) == (importer.world.project_id, None)
        assert told in str(failed.message)
    assert importer.nothing_is_left()


def test_a_name_that_is_taken_is_refused_and_changes_nothing(importer: Importer, tmp_path: Path) -> None:
    work = write(tmp_path / "work", PLAIN)
    first = importer(work)
    before = git(importer.clone, "rev-parse", NAME)
    with pytest.raises(Conflict, match="has a protocol '0007-shed' already"):
        importer(work)
    assert git(importer.clone, "rev-parse", NAME) == before
    assert importer.world.protocol(first).status is RunStatus.PLANNED


def test_a_name_that_is_no_branch_is_refused(importer: Importer, tmp_path: Path) -> None:
    work = write(tmp_path / "work", PLAIN)
    for name in ("../up", "a b", "Quote'd", "x..y", "", "-x"):
        with pytest.raises(Misuse, match="cannot be called"):
            importer(work, name=name)


def test_a_branch_of_somebody_else_is_left_alone(importer: Importer, tmp_path: Path) -> None:
    git(importer.clone, "branch", NAME, "main")
    with pytest.raises(Conflict, match="exists already"):
        importer(write(tmp_path / "work", PLAIN))
    assert git(importer.clone, "rev-parse", NAME) == git(importer.clone, "rev-parse", "main")


def test_a_branch_of_the_remote_is_left_alone(importer: Importer, tmp_path: Path) -> None:
    importer.world.git("branch", NAME, "main")
    with pytest.raises(Conflict, match="exists already at"):
        importer(write(tmp_path / "work", PLAIN))
    assert importer.nothing_is_left()


def test_a_base_that_has_the_folder_already_is_refused(importer: Importer, tmp_path: Path) -> None:
    seed = importer.world.home / "seed"
    write(seed, {f"{ROOT}/plan.md": "Another plan."})
    git(seed, "add", ".")
    git(seed, "commit", "-qm", "another plan")
    git(seed, "push", "-q", str(importer.world.remote), "main")
    with pytest.raises(Conflict, match="the base branch has"):
        importer(write(tmp_path / "work", PLAIN))


def test_a_base_branch_that_does_not_exist_is_refused(importer: Importer, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="'nowhere'"):
        importer(write(tmp_path / "work", PLAIN), base_branch="nowhere")
    assert importer.nothing_is_left()


def orphan(importer: Importer, work: Path) -> str:
    """What a process leaves that dies between the branch and the ledger."""
    run_id = importer(work)
    with importer.world.ledger.write(actor="test") as tx:
        for table in (protocol_steps, steps, protocols, events):
            tx.connection.execute(sa.delete(table).where(table.c.run_id == run_id))
        tx.connection.execute(sa.delete(runs).where(runs.c.id == run_id))
    return git(importer.clone, "rev-parse", NAME)


def test_an_import_that_was_cut_short_is_taken_over_by_the_next(importer: Importer, tmp_path: Path) -> None:
    work = write(tmp_path / "work", PLAIN)
    left = orphan(importer, work)
    run_id = importer(work)
    assert git(importer.clone, "rev-parse", NAME) == left
    assert importer.world.protocol(run_id).status is RunStatus.PLANNED


@pytest.mark.soak
def test_an_import_that_was_cut_short_is_put_on_the_base_as_it_is_now(
    importer: Importer, tmp_path: Path
) -> None:
    work = write(tmp_path / "work", PLAIN)
    left = orphan(importer, work)
    seed = importer.world.home / "seed"
    git(seed, "commit", "-q", "--allow-empty", "-m", "meanwhile")
    git(seed, "push", "-q", str(importer.world.remote), "main")
    run_id = importer(work)
    assert git(importer.clone, "rev-parse", NAME) != left
    assert git(importer.clone, "rev-parse", f"{NAME}^") == importer.world.protocol(run_id).base_commit
    assert importer.world.protocol(run_id).base_commit == importer.world.git("rev-parse", "main")


def test_a_branch_that_was_cut_short_with_other_content_is_not_taken(
    importer: Importer, tmp_path: Path
) -> None:
    left = orphan(importer, write(tmp_path / "work", PLAIN))
    with pytest.raises(Conflict, match="exists already"):
        importer(write(tmp_path / "work", {".codemachine/prompts/plan.md": "Plan otherwise."}))
    assert git(importer.clone, "rev-parse", NAME) == left


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)  # its trigger is in the words of SQLite
def test_a_ledger_that_refuses_takes_the_branch_back(importer: Importer, tmp_path: Path) -> None:
    with importer.world.ledger.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER refuse BEFORE INSERT ON protocol_steps BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    with pytest.raises(Conflict):
        importer(write(tmp_path / "work", PLAIN))
    assert importer.nothing_is_left()


def test_of_several_who_import_the_same_at_once_one_succeeds(importer: Importer, tmp_path: Path) -> None:
    work = write(tmp_path / "work", PLAIN)

    def attempt(_: int) -> int | Conflict:
        try:
            return importer(work)
        except Conflict as refused:
            return refused

    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(attempt, range(4)))
    [run_id] = [each for each in ended if isinstance(each, int)]
    assert importer.world.protocol(run_id).status is RunStatus.PLANNED
    assert importer.show("prompts/00-plan.md")


def test_an_archived_project_takes_nothing(importer: Importer, tmp_path: Path) -> None:
    with importer.world.ledger.write(actor="test") as tx:
        change_project(tx, importer.world.project_id, archived_at=1)
    with pytest.raises(Conflict, match="archived"):
        importer(write(tmp_path / "work", PLAIN))
    assert importer.nothing_is_left()


def test_without_a_clone_it_says_what_to_do(world: World, tmp_path: Path) -> None:
    with pytest.raises(CloneMissing) as caught:
        import_workspace(
            world.runtime,
            world.project_id,
            protocol_name=NAME,
            workspace_path=write(tmp_path / "work", PLAIN),
            actor="test",
        )
    assert caught.value.hint


def test_a_project_that_does_not_exist_is_not_found(world: World, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        import_workspace(world.runtime, 999, protocol_name=NAME, workspace_path=tmp_path, actor="test")
