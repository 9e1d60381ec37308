"""Which tool is meant to be made better, by what a person writes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from ratchet.kernel import Conflict, NotFound
from ratchet.runtime import Runtime
from ratchet.tools.definition import full_name, read_name
from ratchet.tools.registry import open_toolbox
from ratchet.workflows.profiling import profile_workflow


@dataclass(frozen=True, slots=True)
class Chosen:
    """A tool by its id and the folder in which the ledger has it. `why` says why it was chosen, if it was not named."""

    tool: str
    folder: str = ""
    why: str | None = None

    @property
    def name(self) -> str:
        """The tool as a person writes it."""
        return full_name(self.tool, self.folder)


def choose_tool(runtime: Runtime, wanted: str) -> Chosen:
    """The tool that `wanted` names: by its id, as WORKFLOW/TOOL, or as the workflow whose tools are looked at.

    Raises `NotFound`, and `Conflict` for a workflow of which no tool can be made better.
    """
    tool, folder = read_name(wanted)
    if folder:
        return Chosen(tool, folder)
    with contextlib.closing(open_toolbox(runtime.ledger, runtime.settings, runtime.home)) as toolbox:
        try:
            return Chosen(toolbox.get(wanted).name)
        except NotFound as absent:
            return _of_workflow(runtime, wanted, absent)


def choose_of_workflow(runtime: Runtime, name: str) -> Chosen:
    """The tool of a workflow that is worth it most. Raises as `choose_tool` does."""
    with runtime.ledger.read() as tx:
        profile = profile_workflow(tx, name)
    advice = profile.evolve_next
    if advice is None:
        obstacles = "; ".join(each.obstacle for each in profile.advice if each.obstacle)
        raise Conflict(
            f"no tool of {name} can be made better" + (f": {obstacles}" if obstacles else ""),
            hint=f"`ratchet workflow profile {name}` shows where its time goes",
        )
    return Chosen(advice.tool, advice.folder, advice.why)


def _of_workflow(runtime: Runtime, name: str, absent: NotFound) -> Chosen:
    try:
        return choose_of_workflow(runtime, name)
    except NotFound:
        # Neither has it; a tool is what was asked for first, and its error knows what is near.
        raise absent from None
