"""The program that scores. It runs on its own, after the candidate's, and answers on a pipe of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.judges.confinement import run_confined
from ratchet.judges.deadline import Deadline
from ratchet.judges.endings import told
from ratchet.judges.pinned import Pinned
from ratchet.judges.reports import BadReport, finite, strict_json
from ratchet.judges.trial import Ran
from ratchet.kernel import Misuse
from ratchet.sandbox import Bounds, Finished, Policy


class Disqualified(Exception):
    """The evaluator says that what the candidate made does not count."""


class EvaluatorFailed(Exception):
    """There is no score that can be trusted."""


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """How a score is made.

    `argv` runs in `pinned.directory` and may name `{python}`. It is given one JSON object on stdin, must write one on
    stdout, `{"score": 1.5, "measurements": {…}}` or `{"invalid": "why"}`, and exit with 0. It can read the candidate's
    directory and what the trial left, and write nowhere but to a /tmp of its own.
    """

    pinned: Pinned
    argv: tuple[str, ...]
    score_field: str = "score"
    bounds: Bounds = field(default_factory=Bounds)
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        if not self.argv:
            raise Misuse("the evaluator has no command to run")


@dataclass(frozen=True, slots=True)
class Scored:
    """One answer of the evaluator."""

    score: float
    measurements: Mapping[str, float]
    finished: Finished


async def run_evaluator(
    evaluator: Evaluator, candidate: Path, ran: Ran | None, place: Path, *, seed: int, deadline: Deadline
) -> Scored:
    """Ask for one score. Raises `Disqualified`, `EvaluatorFailed`, `OutOfTime` and `CannotStart`."""
    question: dict[str, Any] = {"candidate": str(candidate), "seed": seed, "trial": None}
    readable = [evaluator.pinned.directory, candidate]
    if ran is not None:
        said = place / "said"
        said.mkdir()
        (said / "stdout").write_bytes(ran.finished.stdout)
        (said / "stderr").write_bytes(ran.finished.stderr)
        readable += [ran.out, said]
        question["trial"] = {
            "out": str(ran.out),
            "stdout": str(said / "stdout"),
            "stderr": str(said / "stderr"),
            "wall_ms": ran.finished.wall_ms,
            "cpu_ms": ran.finished.cpu_ms,
            "peak_bytes": ran.finished.peak_bytes,
        }
    finished = await run_confined(
        evaluator.argv,
        cwd=evaluator.pinned.directory,
        stdin=json.dumps(question).encode(),
        bounds=evaluator.bounds,
        policy=evaluator.policy,
        deadline=deadline,
        readable=readable,
        environment={"RATCHET_SEED": str(seed)},
    )
    return read_answer(finished, evaluator.score_field)


def read_answer(finished: Finished, name: str) -> Scored:
    """The score in what the evaluator wrote. A score that was printed before something went wrong is no score."""
    if not finished.ok:
        raise EvaluatorFailed(f"the evaluator: {told(finished)}")
    try:
        answer = strict_json(finished.stdout, "the evaluator's answer")
    except BadReport as error:
        raise EvaluatorFailed(str(error)) from None
    if not isinstance(answer, dict):
        raise EvaluatorFailed(f"the evaluator's answer is {type(answer).__name__}, not an object")
    invalid = answer.get("invalid")
    if isinstance(invalid, str) and answer.get(name) is None:
        raise Disqualified(invalid[:1000] or "no reason given")
    score = finite(answer.get(name))
    if score is None or invalid is not None:
        raise EvaluatorFailed(
            f"the evaluator's answer has no finite number as {name!r}, or contradicts itself"
        )
    return Scored(score, _measurements(answer.get("measurements", {})), finished)


def _measurements(found: object) -> dict[str, float]:
    if not isinstance(found, dict):
        raise EvaluatorFailed("the evaluator's measurements are not an object")
    numbers = {str(name): finite(value) for name, value in found.items()}
    for name, number in numbers.items():
        if number is None:
            raise EvaluatorFailed(f"the evaluator's measurement {name!r} is not a finite number")
    return {name: number for name, number in numbers.items() if number is not None}
