"""Calls that clients really made, made again to the version before and to the new one: what differs is shown.

The tools that a person names beside the feedback may answer otherwise; that is what was asked for. Words are not
searched for names: "add a note" is not about the tool `add`. What the old version itself answers otherwise from one
start to the next is not compared, but may not become an error. Every other difference is a finding.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ratchet.agents.checks.canary import shown, started
from ratchet.agents.checks.files import BrokenContract, NotPassed, take_snapshot
from ratchet.agents.contract import STATE, Role
from ratchet.agents.servers import Called, ServerGaveNoAnswer, call_tool
from ratchet.config.workflow_settings import Agents
from ratchet.judges.scratch import copied, in_thread
from ratchet.ledger.evals import RecordedCall

_ANSWER = 2_000
_SHOWN, _BEFORE = 200, 40


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """A recorded call, to be made again."""

    id: int
    server: Role
    tool: str
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, call: RecordedCall) -> Self:
        return cls(call.id, Role(call.server), call.tool, call.arguments)

    def described(self) -> str:
        return f"{self.tool}({shown(self.arguments)})"


def worth_replaying(found: Sequence[RecordedCall], most: int) -> tuple[ReplayedCall, ...]:
    """The newest of `found` that are whole, each once, in the order in which they were made.

    Each tool has its turn: many calls of one do not keep out those of another.
    """
    different: dict[str, ReplayedCall] = {}
    for call in found:
        if call.is_whole and call.outcome in ("ok", "failed"):
            key = json.dumps([call.server, call.tool, call.arguments], sort_keys=True)
            different.setdefault(key, ReplayedCall.of(call))
    turns: Counter[tuple[str, str]] = Counter()
    ranked: list[tuple[int, int, ReplayedCall]] = []
    for each in different.values():
        ranked.append((turns[each.server, each.tool], -each.id, each))
        turns[each.server, each.tool] += 1
    kept = [each for _, _, each in sorted(ranked, key=lambda rank: rank[:2])[:most]]
    return tuple(sorted(kept, key=lambda each: each.id))


@dataclass(frozen=True, slots=True)
class AskedChanges:
    """Which recorded calls may be answered otherwise: those of `tools`; and where an incident is to be fixed, its
    `call`, and those of its tool that failed before."""

    tools: frozenset[str] = frozenset()
    call: tuple[str, Mapping[str, Any]] | None = None

    def include(self, call: ReplayedCall, *, failed_before: bool) -> bool:
        if call.tool in self.tools:
            return True
        if self.call is None or call.tool != self.call[0]:
            return False
        return failed_before or call.arguments == self.call[1]


@dataclass(frozen=True, slots=True)
class Replay:
    """`state` is what the old version begins with; the new one has its own in `source`."""

    base: Path
    source: Path
    state: Mapping[str, Any]
    calls: Sequence[ReplayedCall]
    asked: AskedChanges
    place: Path
    settings: Agents
    agent: str

    async def check(self, section: dict[str, Any]) -> None:
        """Make the calls to both. Raises `BrokenContract` for answers that differ and were not asked to."""
        section |= {"calls": len(self.calls), "differences": [], "unstable": []}
        try:
            old = await self._answers_of_base("old")
        except NotPassed as problem:
            raise BrokenContract(
                f"the version before does not start, so {len(self.calls)} recorded calls are not compared: {problem}"
            ) from None
        new = await self._answers(await copied(self.source, self.place / "new"))
        differing = [number for number, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
        again = await self._answers_of_base("again") if differing else old
        unasked = []
        for number in differing:
            call, before, after = self.calls[number], old[number], new[number]
            if before != again[number] and (after["failed"] <= before["failed"] or again[number]["failed"]):
                section["unstable"].append(call.described())
                continue
            asked = self.asked.include(call, failed_before=before["failed"])
            section["differences"].append(
                {"call": call.described(), "before": before, "after": after, "asked": asked}
            )
            if not asked:
                unasked.append(difference(call.described(), before, after))
        if unasked:
            raise BrokenContract("; ".join(unasked))

    async def _answers_of_base(self, name: str) -> list[dict[str, Any]]:
        snapshot = await in_thread(lambda: take_snapshot(self.base, self.place / name))
        (snapshot.directory / STATE).write_text(json.dumps(self.state))
        return await self._answers(snapshot.directory)

    async def _answers(self, directory: Path) -> list[dict[str, Any]]:
        found = []
        async with started(directory, self.settings, {}, agent=self.agent) as pair:
            for call in self.calls:
                server = pair.runner if call.server is Role.RUNNER else pair.tuner
                try:
                    answer = await call_tool(
                        server.url, call.tool, call.arguments, self.settings.call_seconds
                    )
                except ServerGaveNoAnswer:
                    found.append({"failed": True, "text": "no answer", "structured": None})
                else:
                    found.append(_answered(answer))
        return found


def _answered(answer: Called) -> dict[str, Any]:
    """An answer as the report has it, with a digest of what is too long for that."""
    whole = json.dumps([answer.content, answer.structured], sort_keys=True)
    found = {"failed": answer.failed, "text": answer.text[:_ANSWER], "structured": shown(answer.structured)}
    return found if len(whole) < _ANSWER else {**found, "sha256": hashlib.sha256(whole.encode()).hexdigest()}


def difference(call: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """A call that is answered otherwise, in one line, which shows where the answers part."""
    pairs = enumerate(zip(old["text"], new["text"], strict=False))
    same = next((number for number, (one, other) in pairs if one != other), 0)
    begin = 0 if same < _SHOWN or old["failed"] != new["failed"] else same - _BEFORE
    said = f"{call} answered {_said(old, begin)}, and now {_said(new, begin)}"
    return said if old["text"] != new["text"] else f"{said}, which differs in what is not shown here"


def _said(answer: Mapping[str, Any], begin: int) -> str:
    cut = f"{'…' if begin else ''}{answer['text'][begin : begin + _SHOWN]}"
    return f"{'the error ' if answer['failed'] else ''}{cut!r}"
