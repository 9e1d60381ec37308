"""A reviewer that says what it is told to say, and remembers what it was asked."""

from __future__ import annotations

from typing import Any

from ratchet.engines import Capabilities, Engine, Failure, Readiness, Request, Session, SessionFailed
from ratchet.kernel import Usage

FINDING = {"severity": "minor", "file": "main.py", "line": 3, "message": "a typo"}


def review(verdict: str = "pass", *findings: dict[str, Any], summary: str = "looks right") -> dict[str, Any]:
    return {"verdict": verdict, "summary": summary, "findings": list(findings)}


class Reviewer:
    """Answers with `output`, or with `text`; with `failure` its session fails."""

    def __init__(
        self,
        output: Any = None,
        text: str = "",
        *,
        name: str = "claude",
        failure: Failure | None = None,
        edits_files: bool = False,
        structured: bool = True,
        simulated: bool = False,
    ) -> None:
        self.name = name
        self.capabilities = Capabilities(edits_files=edits_files, structured_output=structured)
        self.asked: list[Request] = []
        self._failure = failure
        self._session = Session(
            name, text=text, output=output, usage=Usage(input_tokens=100), simulated=simulated
        )

    async def propose(self, request: Request) -> Session:
        self.asked.append(request)
        if request.workspace is not None:
            (request.workspace / "main.py").write_text("the reviewer was here\n")
        if self._failure is not None:
            raise SessionFailed(self._failure, f"it {self._failure}", session=self._session)
        return self._session

    async def check(self) -> Readiness:
        return Readiness(True, "always")


def is_an_engine(reviewer: Reviewer) -> Engine:
    """Checked by the type checker."""
    return reviewer
