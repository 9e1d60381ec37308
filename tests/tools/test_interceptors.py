"""Interceptors: asked in their order, told in the opposite one, and able to refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ratchet.tools.call import ToolCallFailed, ToolResult
from ratchet.tools.caller import GROUP, Interceptor, announced_interceptors, intercepted
from ratchet.tools.definition import Tool, read_tool
from tests.tools.bench import Bench, python_tool
from tests.tools.bench_fixtures import bench, shared_runtime

__all__ = ["bench", "shared_runtime"]

TOOL = read_tool({"type": "python", "python": {"source": "def run(): return 1"}}, folder=None, id="one")


@dataclass
class Spy:
    name: str
    place: int
    heard: list[str] = field(default_factory=list)
    refuses: str | None = None
    breaks: str | None = None

    def before(self, tool: Tool, values: Mapping[str, Any]) -> None:
        self._hear("before")

    def after(self, tool: Tool, values: Mapping[str, Any], outcome: ToolResult | ToolCallFailed) -> None:
        self._hear("after")

    def _hear(self, when: str) -> None:
        self.heard.append(f"{when} {self.name}")
        if self.refuses == when:
            raise ToolCallFailed(f"{self.name} says no")
        if self.breaks == when:
            raise KeyError(when)


async def answer() -> ToolResult:
    return ToolResult(1)


async def fail() -> ToolResult:
    raise ToolCallFailed("no luck")


def run(*chain: Interceptor, call: Any = answer) -> ToolResult:
    return asyncio.run(intercepted(chain, TOOL, {}, call))


def chain(**more: Any) -> tuple[list[str], list[Spy]]:
    heard: list[str] = []
    places = {"F": 0, "N": 50, "L": 100}
    return heard, [Spy(name, place, heard, **more.get(name, {})) for name, place in places.items()]


def test_the_first_is_asked_first_and_told_last() -> None:
    heard, spies = chain()
    assert run(*spies).value == 1
    assert heard == ["before F", "before N", "before L", "after L", "after N", "after F"]


def test_a_call_that_failed_is_told_too() -> None:
    heard, spies = chain()
    with pytest.raises(ToolCallFailed, match="no luck"):
        run(*spies, call=fail)
    assert heard[3:] == ["after L", "after N", "after F"]


def test_one_that_objects_keeps_the_call_from_being_made() -> None:
    heard, spies = chain(N={"refuses": "before"})
    made: list[int] = []

    async def call() -> ToolResult:
        made.append(1)
        return ToolResult(1)

    with pytest.raises(ToolCallFailed, match="N says no"):
        run(*spies, call=call)
    assert (made, heard) == ([], ["before F", "before N", "after N", "after F"])


def test_an_answer_may_be_refused_after_the_call() -> None:
    heard, spies = chain(L={"refuses": "after"})
    with pytest.raises(ToolCallFailed, match="L says no"):
        run(*spies)
    assert heard[-1] == "after F"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_broken_guard_lets_nothing_by(when: str) -> None:
    _, spies = chain(N={"breaks": when})
    with pytest.raises(ToolCallFailed, match="Spy broke: KeyError"):
        run(*spies)


def test_installed_packages_bring_theirs_in_the_order_of_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "class Late:\n    place = 100\nclass Early:\n    place = 0\n"
    (tmp_path / "guards.py").write_text(source)
    (tmp_path / "guards-1.0.dist-info").mkdir()
    (tmp_path / "guards-1.0.dist-info" / "METADATA").write_text("Name: guards\nVersion: 1.0\n")
    listed = f"[{GROUP}]\na = guards:Late\nb = guards:Early\n"
    (tmp_path / "guards-1.0.dist-info" / "entry_points.txt").write_text(listed)
    monkeypatch.syspath_prepend(tmp_path)
    found = announced_interceptors.__wrapped__()
    assert [type(each).__name__ for each in found] == ["Early", "Late"]
    (tmp_path / "guards-1.0.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\na = guards:Gone\n")
    with pytest.raises(ToolCallFailed, match="cannot be loaded"):
        announced_interceptors.__wrapped__()


def test_no_line_of_an_answer_passes_by_those_who_look_at_the_whole(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "class Guard:\n    place = 50\n    def before(self, *_): ...\n    def after(self, *_): ...\n"
    (tmp_path / "one_guard.py").write_text(source)
    (tmp_path / "one_guard-1.0.dist-info").mkdir()
    (tmp_path / "one_guard-1.0.dist-info" / "METADATA").write_text("Name: one_guard\nVersion: 1.0\n")
    listed = f"[{GROUP}]\nguard = one_guard:Guard\n"
    (tmp_path / "one_guard-1.0.dist-info" / "entry_points.txt").write_text(listed)
    speaking, given = python_tool("def run():\n    yield 1\n"), list[Any]()
    with monkeypatch.context() as here:
        here.syspath_prepend(tmp_path)
        announced_interceptors.cache_clear()
        assert bench.call(speaking, give_line=given.append).value == [1]
    announced_interceptors.cache_clear()
    assert given == []
    assert bench.call(speaking, give_line=given.append).value == given == [1]
