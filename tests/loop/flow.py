"""A flow for the tests: it climbs a number in a file, and may die at any named place on its way.

The run's spec alone describes it, so that any worker process can carry it. Everything it does is marked in a file.
"""

from __future__ import annotations

import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ratchet.engines import Capabilities, Readiness, Request, Session
from ratchet.judges import Candidate, Judged
from ratchet.judges.judge import ruled
from ratchet.kernel import Outcome, Usage
from ratchet.loop import Attempted, GitTrunk, Plan, attempt
from ratchet.runtime import JobContext, complete_run, enter_run
from ratchet.workspaces import Repository
from tests.runtime.kinds import mark, marks

REF = "refs/heads/best"
PLACES = (
    "before the session",
    "in the session",
    "after the session",
    "before the verdict",
    "after the verdict",
    "before the ref moves",
    "after the ref moved",
)


class Deaths:
    """Kills this process with -9 at one place, once; the file remembers that it happened."""

    def __init__(self, file: str, place: str | None) -> None:
        self.file = file
        self.place = place

    def pass_by(self, place: str) -> None:
        if place == self.place and "died" not in marks(Path(self.file)):
            mark(self.file, "died")
            os.kill(os.getpid(), signal.SIGKILL)


class Climber:
    """An engine that raises the number in the file by one."""

    name = "climber"
    capabilities = Capabilities(edits_files=True, reports_usage=True)

    def __init__(self, deaths: Deaths) -> None:
        self.deaths = deaths

    async def propose(self, request: Request) -> Session:
        self.deaths.pass_by("before the session")
        assert request.workspace is not None
        file = request.workspace / "number.txt"
        file.write_text(f"{int(file.read_text()) + 1}\n")
        self.deaths.pass_by("in the session")
        mark(self.deaths.file, "proposed")
        self.deaths.pass_by("after the session")
        return Session(self.name, text="climbed", usage=Usage(input_tokens=10), transcript=b"{}\n")

    async def check(self) -> Readiness:
        return Readiness(True, "always")


class Height:
    """A judge: the number must be higher than it was."""

    name = "height"
    hash = "0" * 64

    def __init__(self, deaths: Deaths) -> None:
        self.deaths = deaths

    async def judge(self, candidate: Candidate) -> Judged:
        self.deaths.pass_by("before the verdict")
        height = float((candidate.directory / "number.txt").read_text())
        mark(self.deaths.file, "judged")
        self.deaths.pass_by("after the verdict")
        return ruled(self, Outcome.PASSED, "higher", score=height)


class MortalRepository:
    """A repository whose process may die around the moment that counts."""

    def __init__(self, repository: Repository, deaths: Deaths) -> None:
        self._repository = repository
        self._deaths = deaths

    def __getattr__(self, name: str) -> Any:
        return getattr(self._repository, name)

    def advance(self, ref: str, new: str, *, expected: str | None) -> None:
        if ref == REF:
            self._deaths.pass_by("before the ref moves")
        self._repository.advance(ref, new, expected=expected)
        if ref == REF:
            self._deaths.pass_by("after the ref moved")


async def climb(job: JobContext) -> Any:
    """Climb `spec["height"]` steps, each by one attempt."""
    with job.write() as tx:
        run = enter_run(tx, job.run_id)
    deaths = Deaths(run.spec["file"], run.spec.get("place"))
    repository = Repository.open(Path(run.spec["repository"]))
    try:
        ends = [await climb_one(job, repository, deaths, number) for number in range(run.spec["height"])]
    finally:
        repository.close()
    with job.write() as tx:
        complete_run(tx, job.run_id, [asdict(end)["commit"] for end in ends])


async def climb_one(job: JobContext, repository: Repository, deaths: Deaths, number: int) -> Attempted:
    base = repository.resolve(REF)
    ended = await attempt(
        job,
        f"climb-{number}",
        Plan(
            trunk=GitTrunk(
                repository=MortalRepository(repository, deaths),  # type: ignore[arg-type]
                base=base,
                ref=REF,
                message=f"Climb {number}",
            ),
            engine=Climber(deaths),
            request=Request("climb"),
            judge=Height(deaths),
        ),
    )
    assert ended.kept, ended
    return ended
