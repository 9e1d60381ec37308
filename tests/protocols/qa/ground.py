"""A repository with a protocol on its branch, changes of it, and judges to ask about them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ratchet.engines.registry import EngineContext
from ratchet.judges import Candidate, Judge, Judged, hear
from ratchet.kernel import ProjectId, RunId, RunStatus, StepId, StepStatus
from ratchet.ledger.projects import Project
from ratchet.ledger.protocols import Protocol, ProtocolStep
from ratchet.protocols.engine_choice import Author
from ratchet.protocols.qa import QaJudge, qa_judge
from ratchet.workspaces import Repository, WorkspaceKind

ROOT = ".protocols/0001-demo"
AUTHOR = "codex"
FILES = {
    f"{ROOT}/plan.md": "# The plan\nAdd a greeting.\n",
    f"{ROOT}/context.md": "Nothing yet.\n",
    f"{ROOT}/log.md": "- begun\n",
    f"{ROOT}/00-setup.md": "Get ready.\n",
    f"{ROOT}/01-work.md": "Write hello.txt with a greeting in it.\n",
    "main.py": "print(1)\n",
}
SPEC: dict[str, Any] = {
    "id": "01-work",
    "engine_id": None,
    "prompt_ref": "01-work.md",
    "qa": {"policy": "full"},
}
PROJECT = Project(
    id=ProjectId(1),
    name="demo",
    git_url=None,
    local_path=None,
    base_branch="main",
    ci_provider=None,
    default_models={},
    facts={},
    remote=None,
    token_hash=None,
    setup_run_id=None,
    archived_at=None,
    created_at=0,
    updated_at=0,
)
PROTOCOL = Protocol(
    run_id=RunId(1),
    project_id=ProjectId(1),
    number=1,
    name="0001-demo",
    description="A greeting",
    base_branch="main",
    base_commit=None,
    worktree_path=None,
    protocol_root=None,
    automatic=True,
    template_config=None,
    template_source=None,
    spec={"steps": [SPEC]},
    spec_hash=None,
    spec_status=None,
    spec_errors=None,
    spec_validated_at=None,
    pushed=None,
    pull_request=None,
    status=RunStatus.RUNNING,
    reason=None,
    simulated=False,
    used_recording=False,
    created_at=0,
    updated_at=0,
    ended_at=None,
)
STEP = ProtocolStep(
    step_id=StepId(1),
    run_id=RunId(1),
    step_index=1,
    step_type="work",
    engine_id=None,
    model=None,
    policy=None,
    runtime_state=None,
    summary=None,
    retries=0,
    depends_on=None,
    commit=None,
    awaits_ci=False,
    name="01-work",
    status=StepStatus.RUNNING,
    reason=None,
    spec=SPEC,
    result=None,
    created_at=0,
    updated_at=0,
    ended_at=None,
)


class Ground:
    """A bare repository whose `base` has `FILES`."""

    def __init__(self, path: Path) -> None:
        self.repository = Repository.create(path)
        self.base = self.change(FILES, parent=None)

    def change(self, files: Mapping[str, str | bytes | None], *, parent: str | None = "") -> str:
        """A commit with these files changed, on top of the base unless another parent is given."""
        contents = {
            path: content.encode() if isinstance(content, str) else content for path, content in files.items()
        }
        onto = self.base if parent == "" else parent
        return self.repository.commit_files(contents, parent=onto, message="Change")

    def settle(self, files: Mapping[str, str | bytes | None]) -> None:
        """Make these files part of the base."""
        self.base = self.change(files)

    def work(self, act: Callable[[Path], object]) -> str:
        """A commit of what `act` does to a checkout, as an author's session would make it."""
        workspace = self.repository.workspace(self.base, kind=WorkspaceKind.TREE)
        try:
            act(workspace.path)
            return workspace.commit("Change").hash
        finally:
            workspace.discard()

    def ask(self, judge: Judge, commit: str, **known: Any) -> Judged:
        workspace = self.repository.workspace(commit)
        candidate = Candidate(
            commit,
            self.base,
            workspace.path,
            AUTHOR,
            read_diff=functools.cache(lambda: self.repository.diff(self.base, commit)),
            **known,
        )
        try:
            return asyncio.run(hear(judge, candidate))
        finally:
            workspace.discard()

    def judge(self, surroundings: EngineContext, **changed: Any) -> QaJudge:
        """The judge of the step. Keys of its spec, `facts`, and arguments of `qa_judge` may differ."""
        spec = {**SPEC, **{key: changed.pop(key) for key in ("qa", "metadata", "outputs") if key in changed}}
        project = replace(PROJECT, facts=changed.pop("facts", {}))
        given: dict[str, Any] = {
            "base": self.base,
            "author": AUTHOR,
            "project": project,
            "protocol": PROTOCOL,
        }
        step = replace(STEP, spec=spec, step_type=changed.pop("step_type", "work"))
        if isinstance(changed.get("author", AUTHOR), str):
            changed["author"] = Author(
                name := changed.get("author", AUTHOR), name, changed.pop("model", None)
            )
        return qa_judge(
            settings=surroundings.settings,
            surroundings=surroundings,
            step=step,
            repository=self.repository,
            **{**given, **changed},
        )
