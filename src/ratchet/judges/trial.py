"""Running the candidate's program on its own, before anybody looks at what it left."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratchet.judges.confinement import run_confined
from ratchet.judges.deadline import Deadline
from ratchet.judges.endings import blame, told
from ratchet.judges.function import Function, check_one_way
from ratchet.judges.links import Trap, check_plain
from ratchet.judges.pinned import Pinned
from ratchet.judges.scratch import copied, in_thread
from ratchet.kernel import Misuse, Outcome
from ratchet.sandbox import Bounds, Finished, Layer, Policy

INPUTS = Path("/inputs")
"""Where inputs are seen. The path is the same for all of them, so that it tells nothing about which they are."""


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
class Trial:
    """How the candidate's program is run: as a command, or as a function in a node.

    `argv` may name `{python}`, `{candidate}`, `{inputs}`, `{out}` and `{seed}`. It starts in the candidate's directory,
    which it cannot write unless `writes` gives it a copy; what it wants to be scored goes to `{out}`, also known as
    RATCHET_OUT, or to stdout. What a function returns is scored. `inputs` is a directory that it may read, as
    `{inputs}` or RATCHET_INPUTS. It sees nothing of the evaluator.
    """

    argv: tuple[str, ...] = ()
    function: Function | None = None
    inputs: Pinned | None = None
    writes: bool = False
    bounds: Bounds = field(default_factory=Bounds)
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        check_one_way("trial", self.argv, self.function)
        floor = self.policy.floor
        if self.policy.see_everything or (floor is not None and Layer.MOUNT not in floor):
            raise Misuse("a trial must not see the whole file system: the evaluator is in it")


@dataclass(frozen=True, slots=True)
class Ran:
    """A trial that ended well, and what it left: a directory, or what the function returned."""

    finished: Finished
    seed: int
    out: Path | None = None
    answer: Any = None


async def run_trial(
    trial: Trial, candidate: Path, place: Path, *, seed: int, deadline: Deadline, stdin: bytes = b""
) -> Ran:
    """Run a command in `place`, which is empty. Raises `TrialFailed`, `TrialBroken`, `OutOfTime` and `CannotStart`.

    When it returns, nothing that the trial started lives any more.
    """
    out = place / "out"
    out.mkdir()
    directory = await copied(candidate, place / "candidate") if trial.writes else candidate
    finished = await run_confined(
        trial.argv,
        words={"candidate": directory, "inputs": INPUTS if trial.inputs else "", "out": out, "seed": seed},
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
    except Trap as trap:
        raise TrialFailed(f"the trial left something that cannot be scored: {trap}", finished) from None
    return Ran(finished, seed, out)


async def call_trial(
    trial: Trial, source: str, given: Any, *, seed: int, deadline: Deadline, directory: Path | None = None
) -> Ran:
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
    return Ran(finished, seed, answer=finished.value)


def _places(trial: Trial) -> dict[Path, Path]:
    return {} if trial.inputs is None else {INPUTS: trial.inputs.directory}


def _environment(trial: Trial, seed: int) -> dict[str, str]:
    shown = {} if trial.inputs is None else {"RATCHET_INPUTS": str(INPUTS)}
    return {"RATCHET_SEED": str(seed), **shown}


def _check_ended(finished: Finished) -> None:
    if finished.ok:
        return
    failed = blame(finished) is Outcome.FAILED
    raise (TrialFailed if failed else TrialBroken)(f"the trial: {told(finished)}", finished)
