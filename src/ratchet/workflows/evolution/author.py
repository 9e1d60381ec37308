"""Any engine as the author of a variant: whatever it can do, the variant ends as files in the workspace."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ratchet.engines import Capabilities, Engine, Failure, Readiness, Request, Session, SessionFailed
from ratchet.kernel.semver import Bump

CHANGE = "change.json"
"""What the author says of its change, beside the files. It makes a commit also of a variant that changes nothing else,
so that this is judged and not only failed."""
_LONGEST = 2000

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
class Author:
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
    """Write files anew. A session may have left a link of that name, which must not be followed."""
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
