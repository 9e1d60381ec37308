"""Agents that are a folder of numbered prompts: each file is one of them."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace

from ratchet.protocols.codemachine.agents import Agent, Part, check_id
from ratchet.protocols.codemachine.errors import Place
from ratchet.protocols.codemachine.workspace import CodeMachine

_NUMBERED = re.compile(r"([0-9]+)\s*-\s*(.+)", re.ASCII)


def unfolded(workspace: CodeMachine, agent: Agent) -> list[Agent]:
    """The agent itself, or one for each numbered file of a folder. Raises `WorkspaceInvalid`."""
    if not agent.folder:
        return [agent]
    numbered = []
    for path in workspace.files.matching(f"{_place(workspace, agent)}/*.*"):
        name = _NUMBERED.fullmatch(posixpath.splitext(posixpath.basename(path))[0])
        if name is not None:
            id = check_id(name[2].strip().replace(" ", "-"), "agent", Place(workspace.files.shown(path)))
            numbered.append((int(name[1]), id, path))
    if not numbered:
        raise agent.place.error(f"the folder {agent.id!r} has no numbered files such as 01-plan.md")
    return [
        replace(agent, id=id, name=None, prompt=(Part(path, agent.place),), folder=False)
        for _, id, path in sorted(numbered)
    ]


def _place(workspace: CodeMachine, agent: Agent) -> str:
    usual = (f"prompts/templates/{agent.id}", f"prompts/{agent.id}")
    named = agent.prompt or tuple(Part(path, agent.place) for path in usual)
    paths = [workspace.placeholders.in_path(part.path, part.place) for part in named]
    for place in map(workspace.files.find, paths):
        if place is not None and workspace.files.is_directory(place):
            return place
    raise agent.place.error(f"there is no folder {' or '.join(paths)} for {agent.id!r}")
