"""Python tools and programs where `placement` puts them: here, or on a node that is sent what the tool needs.

A node gets the definition, the inputs, the folder of a program and the files that inputs name. It has no ledger and no
keys, so a tool with secrets stays here.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ratchet.config.workflow_settings import Tools
from ratchet.kernel import Missing
from ratchet.placement import (
    NodeContext,
    NodeNeeds,
    NodeUnfit,
    Order,
    PlacedWork,
    WorkFailed,
    WorkLost,
    carry_out,
    chosen_needs,
    content_hash,
    packed_directory,
    placement_for,
)
from ratchet.tools.call import Occasion, ToolCallFailed, ToolResult, no_listener
from ratchet.tools.definition import Body, Tool, ToolType
from ratchet.tools.programs import NOT_FOUND, bounds_for, call_program, call_python, files_of_inputs

if TYPE_CHECKING:
    from ratchet.config import Settings
    from ratchet.runtime import Runtime

Call = Callable[[Tool, Any, Mapping[str, Any], Occasion, float], Awaitable[ToolResult]]
_CALLS: Mapping[ToolType, Call] = {ToolType.PYTHON: call_python, ToolType.EXECUTABLE: call_program}
_CALL = "ratchet.tools.placed:call_there"
_MOST_SENT = 256 * 1024 * 1024
# The tool's own limit comes first; a node gives up by itself only where that did not work.
_GRACE_SECONDS = 60.0


def is_placed(tool: Tool, settings: Settings) -> bool:
    """Whether nodes do the work of a call, and not this machine."""
    kind = tool.placement.kind or (settings.placement.kind if settings.sets("placement") else "local")
    return kind != "local" and tool.type in _CALLS and not tool.secrets


async def call_placed(
    tool: Tool, body: Body, values: Mapping[str, Any], occasion: Occasion, seconds: float
) -> ToolResult:
    """Raises `ToolCallFailed`."""
    call = _CALLS[tool.type]
    settings = occasion.runtime.settings
    # Calls that are compared by what they take are made on one machine, unless the tool itself belongs elsewhere.
    if not is_placed(tool, settings) or (occasion.tried and not tool.placement.kind):
        return await call(tool, body, values, occasion, seconds)
    work: PlacedWork[ToolResult | ToolCallFailed] = PlacedWork(
        name=f"tool {tool.id}",
        here=lambda: call(tool, body, values, occasion, seconds),
        there=lambda: _order(tool, values, occasion, seconds),
        needs=_needs(tool, occasion, seconds),
        hear=_listener(occasion),
    )
    try:
        # Lines that were passed on cannot be taken back, so the step as a whole is tried again.
        placement = placement_for(settings, tool.placement.kind)
        found = await carry_out(placement, work, **({} if occasion.give_line is None else {"most_lost": 1}))
    except Missing as error:
        raise ToolCallFailed(str(error), hint=error.hint, final=True) from error
    except (WorkLost, WorkFailed) as error:
        raise ToolCallFailed(str(error), hint=error.hint) from error
    if isinstance(found, ToolCallFailed):
        raise found
    return found


class ToolOrder(NamedTuple):
    """One call. `folder` and `inputs` are the hashes of the tool's folder and of the files that inputs name."""

    tool: Tool
    values: Mapping[str, Any]
    seconds: float
    settings: Tools
    folder: str | None
    inputs: str | None
    listens: bool
    lines: bool


def _needs(tool: Tool, occasion: Occasion, seconds: float) -> NodeNeeds:
    settings = occasion.runtime.settings.tools
    install = settings.install_seconds if tool.requirements else 0
    usual = NodeNeeds(
        memory_bytes=bounds_for(tool, occasion, seconds).memory_bytes,
        wall_seconds=seconds + install + _GRACE_SECONDS,
    )
    return chosen_needs(tool.placement, usual)


def _listener(occasion: Occasion) -> Callable[[bytes], None] | None:
    if occasion.listen is no_listener and occasion.give_line is None:
        return None

    def hear(news: bytes) -> None:
        kind, said = pickle.loads(news)
        if kind != _LINE:
            occasion.listen(kind, said)
        elif occasion.give_line is not None:
            occasion.give_line(said)

    return hear


_LINE = "line"


def _order(tool: Tool, values: Mapping[str, Any], occasion: Occasion, seconds: float) -> Order:
    contents: dict[str, bytes] = {}
    folder = inputs = None
    if tool.type is ToolType.EXECUTABLE:
        if tool.folder is not None:
            folder = _pack(tool, tool.folder.resolve(), None, contents)
        if files := files_of_inputs(values, occasion.folder):
            assert occasion.folder is not None
            root = occasion.folder.resolve()
            inputs = _pack(tool, root, tuple(files.values()), contents)
            # As it is to be found below the root there.
            values = {**values, **{name: str(path.relative_to(root)) for name, path in files.items()}}
    given = ToolOrder(
        replace(tool, folder=None),
        dict(values),
        seconds,
        occasion.runtime.settings.tools,
        folder,
        inputs,
        occasion.listen is not no_listener,
        occasion.give_line is not None,
    )
    return Order(_CALL, given, contents, f"tool {tool.hash}")


def _pack(tool: Tool, root: Path, paths: tuple[Path, ...] | None, contents: dict[str, bytes]) -> str:
    marks = tuple(_marks(root, paths))
    if (size := sum(mark[1] for mark in marks)) > _MOST_SENT:
        raise ToolCallFailed(
            f"tool {tool.id} cannot be sent to a node: {root} has {size:,} bytes, at most {_MOST_SENT:,} are sent",
            hint="give the tool a smaller folder, or let it run here: placement.kind = local",
            final=True,
        )
    sha256, content = _packed(root, paths, marks)
    contents[sha256] = content
    return sha256


def _marks(root: Path, paths: tuple[Path, ...] | None) -> list[tuple[str, int, int, int]]:
    """What changes with the files: to pack them anew for each call would take longer than the call."""
    found: list[tuple[str, int, int, int]] = []
    for each in paths or (root,):
        within = os.walk(each) if each.is_dir() else [(str(each.parent), [], [each.name])]
        for directory, _, names in within:
            for name in names:
                stat = Path(directory, name).lstat()
                found.append((f"{directory}/{name}", stat.st_size, stat.st_mtime_ns, stat.st_mode))
    return sorted(found)


@lru_cache(maxsize=16)
def _packed(root: Path, paths: tuple[Path, ...] | None, _marks: tuple[Any, ...]) -> tuple[str, bytes]:
    content = packed_directory(root, paths)
    return content_hash(content), content


@dataclass(frozen=True, slots=True)
class _NodeSettings:
    tools: Tools


@dataclass(frozen=True, slots=True)
class _NodeRuntime:
    """What stands for the runtime on a node: a process in the sandbox needs no more of it."""

    settings: _NodeSettings
    home: Path


async def call_there(order: ToolOrder, node: NodeContext) -> ToolResult | ToolCallFailed:
    """What a node does. Raises `NodeUnfit` where the program is missing: another node may have it."""
    tool = order.tool
    if order.folder is not None:
        tool = replace(tool, folder=await asyncio.to_thread(node.directory, order.folder))

    def say(kind: str, said: Any) -> None:
        node.say(pickle.dumps((kind, said)))

    occasion = Occasion(
        cast("Runtime", _NodeRuntime(_NodeSettings(order.settings), node.cache)),
        folder=None if order.inputs is None else await asyncio.to_thread(node.directory, order.inputs),
        listen=say if order.listens else no_listener,
        give_line=(lambda line: say(_LINE, line)) if order.lines else None,
    )
    assert tool.body is not None
    try:
        return await _CALLS[tool.type](tool, tool.body, order.values, occasion, order.seconds)
    except ToolCallFailed as failed:
        if failed.final and failed.use.exit_code == NOT_FOUND:
            raise NodeUnfit(f"{node.name}: {failed}") from None
        return failed
