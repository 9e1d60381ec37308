"""Specialist sessions of the real Codex CLI and the real Claude SDK: check, edit, submit, and be told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ratchet.engines import Engine, Request
from ratchet.engines.tool_server import offer, way_to
from ratchet.kernel import TrialStatus
from ratchet.modelserver import ModelServer, Script, Turn, call, call_mcp, say
from ratchet.research.session import session_tools
from ratchet.research.sessions import SessionContext, system_prompt, user_prompt
from ratchet.workspaces import WorkspaceKind
from tests.engines.claude_subject import ClaudeSubject
from tests.engines.codex_subject import CodexSubject
from tests.engines.conftest import Place
from tests.research.sessions.lab import HYPOTHESIS, Lab


def opened(kind: str, home: Path, server: ModelServer, turns: list[Turn]) -> tuple[Engine, Script]:
    if kind == "codex":
        codex = CodexSubject(Place(home), server)
        engine = codex.open(*turns)
        assert codex.script is not None
        return engine, codex.script
    claude = ClaudeSubject(Place(home), server)
    return claude.plays(turns), claude.script


def writes(kind: str, command: str) -> Turn:
    return call("exec_command", cmd=command) if kind == "codex" else call("Bash", command=command)


def hold(engine: Engine, context: SessionContext) -> None:
    task, specialist = context.task, context.specialist

    async def run() -> None:
        workspace, way = context.workspace, way_to(engine)
        prompt = user_prompt(
            task, specialist, directory=workspace.path, parent=context.parent, lineage="nothing yet", way=way
        )
        request = Request(
            prompt,
            workspace=workspace.path,
            system=system_prompt(task, specialist, lineage=context.lineage, way=way),
            environment=workspace.environment,
            readable=workspace.readable,
            deadline_seconds=180,
        )
        async with (
            session_tools(context, engine=engine.name) as tools,
            offer(engine, request, tools) as offered,
        ):
            await engine.propose(offered.request)

    asyncio.run(run())


def results(script: Script) -> list[Any]:
    """What the tools answered, those that answered JSON."""
    found = []
    for each in script.requests[-1].results:
        start = each.find("{")
        try:
            found.append(json.loads(each[start:]) if start >= 0 else each)
        except ValueError:
            found.append(each)
    return found


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["codex", "claude"])
@pytest.mark.parametrize("lineage", [True, False], ids=["lineage", "alone"])
def test_a_specialist_checks_edits_and_submits(
    lab: Lab, model_server: ModelServer, tmp_path: Path, kind: str, lineage: bool
) -> None:
    turns = [
        writes(kind, "printf 'WIDTH = (\\n' > recipe.py"),
        call_mcp("ratchet", "syntax_check"),
        writes(kind, "printf 'WIDTH = 128\\n' > recipe.py"),
        call_mcp("ratchet", "syntax_check"),
        call_mcp("ratchet", "submit_trial", hypothesis=HYPOTHESIS, expected_delta="0.5", parent_exp="exp_0"),
        say("It was kept."),
    ]
    engine, script = opened(kind, tmp_path / "home", model_server, turns)
    context = lab.context(
        ends=TrialStatus.KEEP, lineage=lineage, kind=WorkspaceKind.WORKTREE if lineage else WorkspaceKind.TREE
    )
    hold(engine, context)
    [idea] = lab.ideas
    assert (idea.hypothesis, idea.expected_delta, idea.parent) == (HYPOTHESIS, "0.5", 0)
    assert lab.repository.read_file(lab.commit(1), "recipe.py") == b"WIDTH = 128\n"
    told = [each for each in results(script) if isinstance(each, dict)]
    assert [each["ok"] for each in told if "ok" in each] == [False, True]
    assert told[-1]["status"] == "keep"
    named = " ".join(script.requests[0].tools)
    assert "submit_trial" in named
    assert ("read_lineage" in named) is lineage


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["codex", "claude"])
def test_a_specialist_goes_on_from_another_trial_while_its_session_runs(
    lab: Lab, model_server: ModelServer, tmp_path: Path, kind: str
) -> None:
    lab.trial("WIDTH = 7\nOTHER = 1\n")
    turns = [
        call_mcp("ratchet", "rebase_to", exp_id="exp_001"),
        writes(kind, "sed -i 's/7/8/' recipe.py && cat recipe.py"),
        call_mcp("ratchet", "submit_trial", hypothesis=HYPOTHESIS, expected_delta=0.5, parent_exp="001"),
        say("done"),
    ]
    engine, _ = opened(kind, tmp_path / "home", model_server, turns)
    hold(engine, lab.context())
    assert lab.repository.read_file(lab.commit(2), "recipe.py") == b"WIDTH = 8\nOTHER = 1\n"
    assert lab.trials()[2].parent == 1


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["codex", "claude"])
def test_what_is_refused_is_told_and_costs_no_trial(
    lab: Lab, model_server: ModelServer, tmp_path: Path, kind: str
) -> None:
    turns = [
        writes(kind, "printf 'WIDTH = 9\\n' > recipe.py"),
        call_mcp("ratchet", "submit_trial", hypothesis="test", expected_delta="0.5"),
        call_mcp("ratchet", "submit_trial", hypothesis=HYPOTHESIS, expected_delta="0.5", parent_exp="042"),
        call_mcp("ratchet", "submit_trial", hypothesis=HYPOTHESIS, expected_delta="0.5"),
        call_mcp("ratchet", "submit_trial", hypothesis=HYPOTHESIS, expected_delta="0.5"),
        say("done"),
    ]
    engine, script = opened(kind, tmp_path / "home", model_server, turns)
    hold(engine, lab.context())
    said = [str(each) for each in script.requests[-1].results]
    assert any("has 4 characters" in each for each in said)
    assert any("stands on 000, not on 042" in each for each in said)
    assert any("may make 1 trial, and has" in each for each in said)
    assert len(lab.ideas) == 1
