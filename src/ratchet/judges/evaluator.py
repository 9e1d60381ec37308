"""The program that scores. It runs on its own, after the candidate's, and answers on a pipe of its own."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.judges.judge import Deadline
from ratchet.judges.reports import BadReport, Feedback, finite, strict_json
from ratchet.judges.scratch import (
    Function,
    Pinned,
    UnsafeResult,
    blame,
    check_one_way,
    check_plain,
    copied,
    ending_text,
    in_thread,
    run_confined,
)
from ratchet.kernel import Misuse, Outcome
from ratchet.sandbox import Bounds, Finished, Layer, Node, Policy

INPUTS = Path("/inputs")
"""Where inputs are seen. The path is the same for all of them, so that it tells nothing about which they are."""
DATA = Path("/data")
"""Where data that is never copied is seen, each by its name."""


class TrialFailed(Exception):
    """The candidate's program did not come to an end that could be scored."""

    def __init__(self, reason: str, finished: Finished) -> None:
        super().__init__(reason)
        self.finished = finished


class TrialBroken(Exception):
    """The candidate's program could not be run."""

    def __init__(self, reason: str, finished: Finished) -> None:
        super().__init__(reason)
        self.finished = finished


@dataclass(frozen=True, kw_only=True)
class EvaluatorTrial:
    """How the candidate's program is run: as a command, or as a function in a node.

    `argv` may name `{python}`, `{candidate}`, `{inputs}`, `{out}` and `{seed}`. It starts in the candidate's directory,
    which it cannot write unless `writes` gives it a copy; what it wants to be scored goes to `{out}`, also known as
    RATCHET_OUT, or to stdout. What a function returns is scored. `inputs` is a directory that it may read, as
    `{inputs}` or RATCHET_INPUTS. `python` is what `{python}` stands for, if not Ratchet's own. It sees nothing of the
    evaluator.
    """

    argv: tuple[str, ...] = ()
    function: Function | None = None
    inputs: Pinned | None = None
    writes: bool = False
    python: str = ""
    bounds: Bounds = field(default_factory=Bounds)
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        check_one_way("trial", self.argv, self.function)
        floor = self.policy.floor
        if self.policy.see_system or (floor is not None and Layer.MOUNT not in floor):
            raise Misuse("a trial must not see the whole file system: the evaluator is in it")


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A trial that ended well, and what it left: a directory, or what the function returned.

    `trained` is the run before it, whose directory it began in.
    """

    finished: Finished
    seed: int
    out: Path | None = None
    answer: Any = None
    trained: TrialRun | None = None


async def run_trial(
    trial: EvaluatorTrial, candidate: Path, place: Path, *, seed: int, deadline: Deadline, stdin: bytes = b""
) -> TrialRun:
    """Run a command in `place`, which is empty. Raises `TrialFailed`, `TrialBroken`, `OutOfTime` and `CannotStart`.

    When it returns, nothing that the trial started lives any more.
    """
    out = place / "out"
    out.mkdir(parents=True)
    directory = await copied(candidate, place / "candidate") if trial.writes else candidate
    finished = await run_confined(
        trial.argv,
        words={
            **({"python": trial.python} if trial.python else {}),
            "candidate": directory,
            "inputs": INPUTS if trial.inputs else "",
            "data": DATA,
            "out": out,
            "seed": seed,
        },
        cwd=directory,
        stdin=stdin,
        bounds=trial.bounds,
        policy=trial.policy,
        deadline=deadline,
        readable=(directory,),
        writable=(out, directory) if trial.writes else (out,),
        places=_places(trial),
        environment={**_environment(trial, seed), "RATCHET_OUT": str(out)},
    )
    _check_ended(finished)
    try:
        await in_thread(lambda: check_plain(out))
    except UnsafeResult as trap:
        raise TrialFailed(f"the trial left something that cannot be scored: {trap}", finished) from None
    return TrialRun(finished, seed, out)


async def call_trial(
    trial: EvaluatorTrial,
    source: str,
    given: Any,
    *,
    seed: int,
    deadline: Deadline,
    directory: Path | None = None,
) -> TrialRun:
    """Call the trial's function, which is in `source`, with `given`. Raises as `run_trial` does.

    With a `directory`, the function may read it and import what is in it.
    """
    assert trial.function is not None
    finished = await run_confined(
        trial.function.node(source, directory),
        stdin=json.dumps(given).encode(),
        bounds=trial.bounds,
        policy=trial.policy,
        deadline=deadline,
        readable=() if directory is None else (directory,),
        places=_places(trial),
        environment=_environment(trial, seed),
    )
    _check_ended(finished)
    return TrialRun(finished, seed, answer=finished.value)


def _places(trial: EvaluatorTrial) -> dict[Path, Path]:
    return {} if trial.inputs is None else {INPUTS: trial.inputs.directory}


def _environment(trial: EvaluatorTrial, seed: int) -> dict[str, str]:
    shown = {} if trial.inputs is None else {"RATCHET_INPUTS": str(INPUTS)}
    return {"RATCHET_SEED": str(seed), **shown}


def _check_ended(finished: Finished) -> None:
    if finished.ok:
        return
    failed = blame(finished) is Outcome.FAILED
    raise (TrialFailed if failed else TrialBroken)(f"the trial: {ending_text(finished)}", finished)


Answer = Mapping[str, Any]


class Disqualified(Exception):
    """The evaluator says that what the candidate made does not count.

    It may say by a `status` in which way, and then also tell the score that it would have had.
    """

    def __init__(
        self,
        reason: str,
        finished: Finished,
        *,
        status: str | None = None,
        score: float | None = None,
        measurements: Mapping[str, float] | None = None,
        feedback: Feedback | None = None,
    ) -> None:
        super().__init__(reason)
        self.finished = finished
        self.status = status
        self.score = score
        self.measurements = measurements or {}
        self.feedback = feedback or Feedback()


class EvaluatorFailed(Exception):
    """There is no score that can be trusted."""

    def __init__(self, reason: str, finished: Finished) -> None:
        super().__init__(reason)
        self.finished = finished


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """How a score is made: by a command, or by a function in a node.

    `argv` runs in `pinned.directory` and may name `{python}`. It is given one JSON object on stdin, must write one on
    stdout, `{"score": 1.5, "measurements": {…}}` or `{"invalid": "why"}`, and exit with 0. Either may have a text
    `feedback` and texts by name in `artifacts`. A `function`, in a file of
    `pinned.directory`, is given that object and returns the other. It can read what the trial left, the `inputs`, and
    the candidate's directory if it `reads_candidate`, and write nowhere but to a /tmp of its own.
    """

    pinned: Pinned
    argv: tuple[str, ...] = ()
    function: Function | None = None
    inputs: Pinned | None = None
    reads_candidate: bool = True
    score_field: str = "score"
    python: str = ""
    bounds: Bounds = field(default_factory=Bounds)
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        check_one_way("evaluator", self.argv, self.function)


@dataclass(frozen=True, slots=True)
class Scored:
    """One answer of the evaluator."""

    score: float
    measurements: Mapping[str, float]
    finished: Finished
    feedback: Feedback = field(default_factory=Feedback)


async def run_evaluator(
    evaluator: Evaluator,
    candidate: Path | None,
    rans: Sequence[TrialRun],
    place: Path | None,
    *,
    seed: int,
    deadline: Deadline,
    known: Answer | None = None,
    classify: Callable[[Answer], Answer] = lambda answer: answer,
) -> Scored:
    """Ask for one score of all that was run. Raises `Disqualified`, `EvaluatorFailed`, `OutOfTime` and `CannotStart`.

    `known` is told to it too. What commands have printed is put into `place`. `classify` reads its answer first.
    """
    told_of = [_measured(ran, number, place) for number, ran in enumerate(rans)]
    shown = candidate if evaluator.reads_candidate else None
    question = {
        "seed": seed,
        **(known or {}),
        "candidate": None if shown is None else str(shown),
        "trial": told_of[0] if told_of else None,
        "trials": told_of,
    }
    left = [path for ran, each in zip(rans, told_of, strict=True) for path in _left(ran, each)]
    finished = await ask_evaluator(
        evaluator,
        evaluator.function,
        question,
        readable=(*(() if shown is None else (shown,)), *left),
        seed=seed,
        deadline=deadline,
    )
    return read_answer(finished, evaluator.score_field, classify)


async def ask_evaluator(
    evaluator: Evaluator,
    function: Function | None,
    question: Answer,
    *,
    seed: int,
    deadline: Deadline,
    readable: Sequence[Path] = (),
) -> Finished:
    """Call a function of the evaluator's directory, or without one run its command, with `question`."""
    directory, inputs = evaluator.pinned.directory, evaluator.inputs
    work: Sequence[str] | Node = evaluator.argv
    shown: tuple[Path, ...] = (directory,)
    if function is not None:
        work = function.node((directory / function.file).read_text(encoding="utf-8"), directory)
        # A node that is shown nothing starts quicker, and an only file was just read.
        shown = (directory,) if evaluator.pinned.entries > 1 else ()
    return await run_confined(
        work,
        words={"python": evaluator.python} if evaluator.python else None,
        cwd=directory,
        stdin=json.dumps(question).encode(),
        bounds=evaluator.bounds,
        policy=evaluator.policy,
        deadline=deadline,
        readable=(*shown, *readable),
        places={} if inputs is None else {INPUTS: inputs.directory},
        environment={
            "RATCHET_SEED": str(seed),
            **({} if inputs is None else {"RATCHET_INPUTS": str(INPUTS)}),
        },
    )


def read_answer(
    finished: Finished, name: str, classify: Callable[[Answer], Answer] = lambda answer: answer
) -> Scored:
    """The score in what the evaluator wrote. A score that was printed before something went wrong is no score."""
    if not finished.ok:
        raise EvaluatorFailed(f"the evaluator: {ending_text(finished)}", finished)
    try:
        found = strict_json(finished.stdout, "the evaluator's answer")
        if not isinstance(found, dict):
            raise BadReport(f"the evaluator's answer is {type(found).__name__}, not an object")
        answer = classify(found)
        measurements = _measurements(answer.get("measurements", {}))
        feedback = Feedback.of({**found, **answer})
        return _read(answer, name, measurements, feedback, finished)
    except BadReport as error:
        raise EvaluatorFailed(str(error), finished) from None


def _read(
    answer: Answer, name: str, measurements: dict[str, float], feedback: Feedback, finished: Finished
) -> Scored:
    score, invalid, status = finite(answer.get(name)), answer.get("invalid"), answer.get("status")
    if isinstance(invalid, str) and (answer.get(name) is None or (score is not None and status)):
        if not (status is None or isinstance(status, str)):
            raise BadReport(f"the evaluator's status is {type(status).__name__}, not a text")
        raise Disqualified(
            invalid[:1000] or "no reason given",
            finished,
            status=status,
            score=score,
            measurements=measurements,
            feedback=feedback,
        )
    if score is None:
        raise BadReport(f"the evaluator's answer has no finite number as {name!r}: {_instead(answer, name)}")
    if invalid is not None:
        raise BadReport(f"the evaluator's answer contradicts itself: it has {name!r}, and 'invalid' as well")
    return Scored(score, measurements, finished, feedback)


def _instead(answer: Answer, name: str) -> str:
    """What an answer has in the place of its score, for whoever has to fix the evaluator."""
    if name in answer:
        return f"it is {reprlib.repr(answer[name])}"
    return f"it has {', '.join(map(repr, answer))[:200]}" if answer else "it is empty"


def _measurements(found: object) -> dict[str, float]:
    if not isinstance(found, dict):
        raise BadReport("the evaluator's measurements are not an object")
    numbers = {str(name): finite(value) for name, value in found.items()}
    for name, number in numbers.items():
        if number is None:
            raise BadReport(f"the evaluator's measurement {name!r} is not a finite number")
    return {name: number for name, number in numbers.items() if number is not None}


def _left(ran: TrialRun, told_of: Mapping[str, Any]) -> tuple[Path, ...]:
    if ran.out is None:
        return ()
    before = () if ran.trained is None else _left(ran.trained, told_of["trained"])
    return (ran.out, Path(told_of["stdout"]).parent, *before)


def _measured(ran: TrialRun, number: int | str, place: Path | None) -> dict[str, Any]:
    """What the evaluator is told of a trial. Output of a command is put into files, being of any size."""
    usage = {
        "seed": ran.seed,
        "wall_ms": ran.finished.wall_ms,
        "cpu_ms": ran.finished.cpu_ms,
        "peak_bytes": ran.finished.peak_bytes,
    }
    if ran.out is None:
        return {"answer": ran.answer, **usage}
    assert place is not None
    said = place / f"said-{number}"
    said.mkdir()
    (said / "stdout").write_bytes(ran.finished.stdout)
    (said / "stderr").write_bytes(ran.finished.stderr)
    before = {} if ran.trained is None else {"trained": _measured(ran.trained, f"{number}-trained", place)}
    return {
        "out": str(ran.out),
        "stdout": str(said / "stdout"),
        "stderr": str(said / "stderr"),
        **usage,
        **before,
    }
