"""An engine without a model: it brings a change that was passed onto a branch that has moved meanwhile."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

from ratchet.engines import Failure, Request, Session, SessionFailed
from ratchet.engines.engine import Capabilities, EventKind, Readiness, Transcript
from ratchet.kernel import Misuse
from ratchet.workspaces.git import find_git

NAME = "rebase"
_SECTION = re.compile(r"^(?=diff --git )", re.MULTILINE)
_SECONDS = 60.0


class RebaseEngine:
    """Applies `patch`, or says why it does not fit. What it makes is judged like any other change."""

    name = NAME
    capabilities = Capabilities(edits_files=True)

    def __init__(self, patch: str) -> None:
        self._patch = patch

    async def propose(self, request: Request) -> Session:
        if request.workspace is None:
            raise Misuse("a change can only be applied to a workspace")
        transcript = Transcript(request)
        complaint = await asyncio.to_thread(_apply, request.workspace, self._patch)
        said = complaint or "the change fits"
        transcript.say(EventKind.MESSAGE, said)
        session = Session(NAME, text=said, transcript=transcript.content)
        if complaint:
            told = f"the change does not fit onto the branch any more: {complaint}"
            raise SessionFailed(Failure.BAD_OUTPUT, told, session=session)
        return session

    async def check(self) -> Readiness:
        return Readiness(True, find_git())


def without(patch: str, path: str) -> str:
    """The patch without what it does to one file."""
    sections = _SECTION.split(patch)
    return "".join(each for each in sections if not each.startswith(f"diff --git a/{path} b/{path}\n"))


def _apply(workspace: Path, patch: str) -> str | None:
    """Apply it, all or nothing; what is wrong if it cannot be."""
    words = [find_git(), "apply", "--whitespace=nowarn", "-"]
    # Nothing of a repository further up: this is a plain directory of files.
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": str(workspace.parent)}
    done = subprocess.run(
        words,
        input=patch.encode("utf-8", "surrogateescape"),
        cwd=workspace,
        env={**environment, "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"},
        capture_output=True,
        check=False,
        timeout=_SECONDS,
    )
    return None if done.returncode == 0 else done.stderr.decode("utf-8", "replace").strip()[:2000]
