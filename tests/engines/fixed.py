"""An engine that always proposes the same change: a yardstick, and a stand-in where a model would only cost money."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ratchet.engines.engine import (
    Capabilities,
    EventKind,
    Failure,
    Readiness,
    Request,
    Session,
    SessionFailed,
    Transcript,
)
from ratchet.engines.program import check_fit
from ratchet.kernel import Misuse, Usage


class FixedEngine:
    """Writes `files` into the workspace and says `text`. A path that maps to nothing is deleted."""

    name = "fixed"
    capabilities = Capabilities(edits_files=True, structured_output=True, reports_usage=True)

    def __init__(
        self,
        files: Mapping[str, str | None],
        *,
        text: str = "done",
        output: object = None,
        usage: Usage | None = None,
    ) -> None:
        self._files = files
        self._text = text
        self._output = output
        self._usage = usage or Usage()

    async def propose(self, request: Request) -> Session:
        check_fit(request, self.name, self.capabilities)
        transcript = Transcript(request)
        if request.workspace is None:
            raise Misuse("the fixed engine changes files, so it needs a workspace")
        for path, content in self._files.items():
            target = request.workspace / path
            if content is None:
                target.unlink()
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(content)
            transcript.say(EventKind.FILE_CHANGE, path)
        transcript.say(EventKind.MESSAGE, self._text)
        session = Session(
            self.name, text=self._text, output=self._output, usage=self._usage, transcript=transcript.content
        )
        over = request.limits.exceeded_by(self._usage)
        if over is not None:
            raise SessionFailed(Failure.BUDGET, f"{over[0]}: {over[1]:g} of {over[2]:g}", session=session)
        # Another task may want to cancel, as with any engine.
        await asyncio.sleep(0)
        return session

    async def check(self) -> Readiness:
        return Readiness(True, f"writes {len(self._files)} files")
