"""Calls that clients really made, made again to the version before and to the new one: what differs is shown.

The tools that the feedback names may answer otherwise; that is what was asked for. What a person says without a name is
about all of them, but asks for no errors; what callers say is about none then. What the old version itself answers
otherwise from one start to the next is not compared. Every other difference is a finding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ratchet.agents.checks.canary import shown, started
from ratchet.agents.checks.files import BrokenContract, NotPassed, take_snapshot
from ratchet.agents.contract import STATE, Role
from ratchet.agents.servers import ServerGaveNoAnswer, call_tool
from ratchet.config.workflow_settings import Agents
from ratchet.judges.scratch import copied, in_thread
from ratchet.ledger.evals import RecordedCall

_ANSWER = 2_000


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
    """The newest of `found` that are whole, each once, in the order in which they were made."""
    kept: dict[str, ReplayedCall] = {}
    for call in found:
        if call.is_whole and call.outcome in ("ok", "failed") and len(kept) < most:
            kept.setdefault(
                json.dumps([call.server, call.tool, call.arguments], sort_keys=True), ReplayedCall.of(call)
            )
    return tuple(sorted(kept.values(), key=lambda each: each.id))


def names(message: str, tool: str) -> bool:
    """Whether a feedback names a tool, perhaps with spaces in its name."""
    spelled = re.escape(tool).replace("_", "[_ -]?")
    return re.search(rf"(?<!\w){spelled}(?!\w)", message, re.IGNORECASE) is not None


@dataclass(frozen=True, slots=True)
class Replay:
    """`state` is what the old version begins with; the new one has its own in `source`."""

    base: Path
    source: Path
    state: Mapping[str, Any]
    calls: Sequence[ReplayedCall]
    message: str
    is_personal: bool
    tools: Sequence[str]
    place: Path
    settings: Agents
    agent: str

    async def check(self, section: dict[str, Any]) -> None:
        """Make the calls to both. Raises `BrokenContract` for answers that differ and were not asked to."""
        section |= {"calls": len(self.calls), "differences": [], "unstable": []}
        try:
            old = await self._answers_of_base("old")
        except NotPassed as problem:
            section["reason"] = f"the version before cannot be asked: {problem}"
            return
        new = await self._answers(await copied(self.source, self.place / "new"))
        differing = [number for number, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]]
        again = await self._answers_of_base("again") if differing else old
        unasked = []
        for number in differing:
            call = self.calls[number]
            if old[number] != again[number]:
                section["unstable"].append(call.described())
                continue
            asked = self._asked(call.tool, old[number], new[number])
            section["differences"].append(
                {"call": call.described(), "before": old[number], "after": new[number], "asked": asked}
            )
            if not asked:
                unasked.append(difference(call.described(), old[number], new[number]))
        if unasked:
            raise BrokenContract("; ".join(unasked))

    def _asked(self, tool: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Whether the feedback asked for another answer of this tool."""
        if any(names(self.message, each) for each in (*self.tools, tool)):
            return names(self.message, tool)
        return self.is_personal and (old["failed"] or not new["failed"])

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
                    text, structured = answer.text[:_ANSWER], shown(answer.structured)
                    found.append({"failed": answer.failed, "text": text, "structured": structured})
        return found


def difference(call: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """A call that is answered otherwise, in one line."""
    return f"{call} answered {_said(old)}, and now {_said(new)}"


def _said(answer: Mapping[str, Any]) -> str:
    return f"{'the error ' if answer['failed'] else ''}{answer['text'][:200]!r}"
