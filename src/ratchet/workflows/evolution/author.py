"""Any engine as the author of a variant: whatever it can do, the variant ends as files in the workspace."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ratchet.engines import Capabilities, Engine, Failure, Readiness, Request, Session, SessionFailed
from ratchet.kernel import Outcome
from ratchet.kernel.semver import Bump
from ratchet.ledger import Transaction
from ratchet.ledger.tools import CallRow, CallStats, ToolVersionStatus, VersionRow, list_versions
from ratchet.tools.definition import Tool, ToolType
from ratchet.workflows.evolution.graph import GRAPH
from ratchet.workflows.evolution.parts import SOURCE
from ratchet.workflows.evolution.subject import Subject, input_hash

_SYSTEM = """\
You make one tool better: faster, smaller, cheaper, or right where it is wrong.

How your version is judged:
- It is run against the version in use, on the tool's examples (some of which you do not see), its tests, real inputs
  that you do not see, and generated inputs.
- Examples outrank the version in use. If that fails some of them it is broken: a version that passes more of them, and
  all that passed before, is taken whatever the old one answers. It has to solve the task; an answer that is written
  into the code is refused.
- Otherwise, where the version in use gives the same answer every time, yours must give exactly that answer to every
  input, and it is taken only if it is better beyond noise in something, by at least a twentieth, and not clearly worse
  elsewhere.
- A change of names, comments or layout is worth nothing. Do not repeat what was tried before.

What stays as it is: the inputs, the outputs, the schemas, and what a tool that passes its examples does with odd
inputs, errors included."""

_PYTHON = """\
The tool is Python. Keep the function that is called, or the script that reads one JSON document from stdin and prints
one. It runs in a fresh process each time, without network and without files, so nothing can be kept for the next call.
Use the standard library and what the tool requires already."""

_LLM = """\
The tool is a question to a model. You may rewrite its system prompt and its prompt template; names of inputs in braces
stand for their values and must stay. Fewer words that give the same answers are cheaper."""

_GRAPH = """\
The tool is a workflow. You may order, join, split and drop its steps, let steps run at once that need nothing of each
other, and ask models in other words. It calls no tools, files, models or people but those that it calls now; its id,
its inputs, the names of its outputs and the tools that it brings along stay. Begin with the steps of the critical path
and with those that fail."""

TRIED = "Tried before, oldest first; do not repeat any of it"
_LONGEST_ERROR = 500
_MOST_FAILURES = 3
EVOLVED = "evolved"
_MOST = 10
# Versions that came from elsewhere stand between those that were tried.
_LOOKED_AT = 50
_LONGEST_TEXT = 500
_GAIN = ".gain"
CHANGE = "change.json"
"""The author's description of its change. It makes a commit also of a variant that changes nothing else,
so that this is judged and not only failed."""
_LONGEST = 2000


def system_prompt(tool: Tool) -> str:
    about = {ToolType.LLM: _LLM, ToolType.WORKFLOW: _GRAPH}
    return f"{_SYSTEM}\n\n{about.get(tool.type, _PYTHON)}"


def make_prompt(
    subject: Subject,
    files: Mapping[str, str],
    earlier: Sequence[Earlier],
    *,
    why: str,
    edits_files: bool,
) -> str:
    """What is asked for, with everything that is known about the tool."""
    tool = subject.tool
    failing = [each for each in subject.shown_examples if input_hash(each.input) in subject.failing]
    how = "Edit the files in this directory:" if edits_files else "Answer with the whole new text of:"
    sections = [
        f"The tool {tool.id}: {tool.description.strip()}",
        f"Why it should be better: {why}",
        _listed("What its calls took", _measured(subject.stats)),
        _listed("Where the time of its steps goes", subject.graph),
        _listed("Calls that failed lately", [_failure(call) for call in subject.failures[:_MOST_FAILURES]]),
        _schemas(tool),
        _listed("Examples", [_example(each.input, each.output) for each in subject.shown_examples]),
        _listed("Examples that it fails", [_example(each.input, each.output) for each in failing]),
        _listed(TRIED, [each.summary_line() for each in earlier]),
        f"{how} {', '.join(files)}. Say in a sentence what you changed and why it should be better.",
        *(_file(name, text) for name, text in files.items()),
    ]
    return "\n\n".join(section for section in sections if section)


def _measured(stats: CallStats) -> list[str]:
    found = {
        "calls": f"{stats.runs}",
        "success rate": _number(stats.success_rate, "{:.0%}"),
        "mean time": _number(stats.recent_wall_ms, "{:.1f} ms"),
        "slowest twentieth": _number(stats.recent_p95_ms, "{:.1f} ms or more"),
        "most memory": _number(stats.recent_peak_bytes, "{:.0f} bytes"),
        "mean cost": _number(stats.recent_cost_microusd or None, "{:.0f} millionths of a dollar"),
        "score": _number(stats.recent_score, "{:.2f} of 1"),
    }
    return [f"{name}: {value}" for name, value in found.items() if value]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _failure(call: CallRow) -> str:
    shown = "an input that was not kept" if call.input is None else json.dumps(call.input)[:_LONGEST_ERROR]
    return f"{shown}: {(call.error or 'no error is on record')[:_LONGEST_ERROR]}"


def _schemas(tool: Tool) -> str:
    found = {"Input schema": tool.input_schema, "Output schema": tool.output_schema}
    return "\n".join(f"{name}: {json.dumps(schema)}" for name, schema in found.items() if schema)


def _example(values: Mapping[str, Any], output: Any) -> str:
    return f"{json.dumps(values)} → {json.dumps(output)}"


def _listed(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *(f"- {line}" for line in lines)]) if lines else ""


def _file(name: str, text: str) -> str:
    language = {SOURCE: "python", GRAPH: "json"}.get(name, "")
    return f"{name} now:\n```{language}\n{text.rstrip()}\n```"


@dataclass(frozen=True, slots=True)
class Earlier:
    """One try at a better version: what was changed and what came of it."""

    summary: str
    taken: bool
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)

    def summary_line(self) -> str:
        """In one line, however it was written."""
        outcome = "taken" if self.taken else "refused"
        gains = [(name, value) for name, value in self.numbers.items() if name.endswith(_GAIN)]
        shown = ", ".join(f"{name.removesuffix(_GAIN)} {value:+.1%}" for name, value in gains)
        text = f"{self.summary[:_LONGEST_TEXT]} — {outcome}: {self.reason[:_LONGEST_TEXT]}"
        return " ".join(f"{text} (gains: {shown})".split() if shown else text.split())


def earlier_tries(tx: Transaction, tool_id: int, *, but_run: int | None = None) -> list[Earlier]:
    """The last tries with a tool, oldest first, without those of one run."""
    rows = list_versions(tx, tool_id, limit=_LOOKED_AT)
    tried = [row for row in rows if row.origin == EVOLVED and (but_run is None or row.run_id != but_run)]
    return [_earlier(row) for row in reversed(tried[:_MOST])]


def refused_variants(tx: Transaction, tool_id: int, incumbent_id: int) -> dict[str, str]:
    """What need not be measured: variants of this very version that a judge has refused, and versions that a person
    has taken back. By their hashes, with the reason."""
    rows = list_versions(tx, tool_id, limit=_LOOKED_AT)
    return {
        row.hash: row.reason or "no reason is on record"
        for row in rows
        if row.status is ToolVersionStatus.ROLLED_BACK or _was_refused(row, incumbent_id)
    }


def _was_refused(row: VersionRow, incumbent_id: int) -> bool:
    """By a judge. Others passed and were not taken for another reason, which may be gone."""
    refused = row.status is ToolVersionStatus.REFUSED and row.parent_id == incumbent_id
    return refused and (row.verdict or {}).get("outcome") == Outcome.FAILED


def _earlier(row: VersionRow) -> Earlier:
    verdict: Mapping[str, Any] = row.verdict or {}
    return Earlier(
        summary=str(verdict.get("summary") or "no summary is on record"),
        taken=row.status in (ToolVersionStatus.PROMOTED, ToolVersionStatus.ROLLED_BACK),
        reason=row.reason or "no reason is on record",
        numbers=verdict.get("measurements") or {},
    )


_ABOUT = {
    "summary": {
        "type": "string",
        "description": "what was changed and why it should be better, in a sentence",
    },
    "change_type": {"type": "string", "enum": [str(each) for each in (Bump.PATCH, Bump.MINOR)]},
}


def answer_schema(files: Mapping[str, str]) -> dict[str, Any]:
    """What an engine that edits no files answers: the whole new text of each, and what it changed."""
    texts = {name: {"type": "string", "description": f"the whole new {name}"} for name in files}
    properties = {**{_key(name): schema for name, schema in texts.items()}, **_ABOUT}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@dataclass(frozen=True, slots=True)
class VariantAuthor:
    """`files` are those that it may rewrite. `number` names the try, so that no two commits are alike."""

    engine: Engine
    files: Mapping[str, str]
    number: str

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.engine.capabilities, edits_files=True)

    async def propose(self, request: Request) -> Session:
        assert request.workspace is not None
        # One that edits files is asked for no form: a good change must not fail for the words beside it.
        edits = self.engine.capabilities.edits_files
        session = await (self.engine.propose(request) if edits else self._answered(request))
        change = {"try": self.number, **_said(session)}
        await asyncio.to_thread(
            _write, session, request.workspace, {CHANGE: json.dumps(change, indent=2) + "\n"}
        )
        return session

    async def check(self) -> Readiness:
        return await self.engine.check()

    async def _answered(self, request: Request) -> Session:
        """Ask one that only speaks, and write what it says."""
        asked = replace(
            request,
            workspace=None,
            environment={},
            readable=(),
            hidden=(),
            output_schema=answer_schema(self.files),
        )
        session = await self.engine.propose(asked)
        if not isinstance(session.output, dict):
            raise SessionFailed(Failure.BAD_OUTPUT, "the engine answered without a variant", session=session)
        texts = {name: str(session.output[_key(name)]) for name in self.files}
        assert request.workspace is not None
        await asyncio.to_thread(_write, session, request.workspace, texts)
        return session


def read_change(data: bytes) -> tuple[str, Bump]:
    """The summary and the size of a change, from its file."""
    found = json.loads(data)
    return str(found["summary"]), Bump(found["change_type"])


def _said(session: Session) -> dict[str, str]:
    answer = session.output if isinstance(session.output, dict) else {}
    summary = str(answer.get("summary") or session.text or "").strip()[:_LONGEST]
    wanted = answer.get("change_type")
    bump = wanted if wanted in ("patch", "minor") else "patch"
    return {"summary": summary or "no summary was given", "change_type": str(bump)}


def _write(session: Session, directory: Path, texts: Mapping[str, str]) -> None:
    """Write files again. A session may have left a link of that name, which must not be followed."""
    for name, text in texts.items():
        path = directory / name
        try:
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise SessionFailed(
                Failure.BAD_OUTPUT,
                f"the session left something in the way of {name}: {error}",
                session=session,
            ) from error
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)


def _key(name: str) -> str:
    """How a file is called in an answer: `tool.py` holds the `source`."""
    return {"tool.py": "source"}.get(name, Path(name).stem)
