"""Running the candidate's program on its own, before anybody looks at what it left."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ratchet.judges.confinement import run_confined
from ratchet.judges.deadline import Deadline
from ratchet.judges.endings import blame, told
from ratchet.judges.links import Trap, check_plain
from ratchet.judges.pinned import Pinned
from ratchet.judges.scratch import copied, in_thread
from ratchet.kernel import Misuse, Outcome
from ratchet.sandbox import Bounds, Finished, Layer, Policy


class TrialFailed(Exception):
    """The candidate's program did not come to an end that could be scored."""


class TrialBroken(Exception):
    """The candidate's program could not be run."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How the candidate's program is run.

    `argv` may name `{python}`, `{candidate}`, `{inputs}`, `{out}` and `{seed}`. It starts in the candidate's directory,
    which it cannot write unless `writes` gives it a copy; what it wants to be scored goes to `{out}`, also known as
    RATCHET_OUT, or to stdout. `inputs` is a directory that it may read. It sees nothing of the evaluator.
    """

    argv: tuple[str, ...]
    inputs: Pinned | None = None
    writes: bool = False
    bounds: Bounds = field(default_factory=Bounds)
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        if not self.argv:
            raise Misuse("the trial has no command to run")
        floor = self.policy.floor
        if self.policy.see_everything or (floor is not None and Layer.MOUNT not in floor):
            raise Misuse("a trial must not see the whole file system: the evaluator is in it")


@dataclass(frozen=True, slots=True)
class Ran:
    """A trial that exited with 0, and the directory with what it left."""

    finished: Finished
    out: Path


async def run_trial(trial: Trial, candidate: Path, place: Path, *, seed: int, deadline: Deadline) -> Ran:
    """Run it in `place`, which is empty. Raises `TrialFailed`, `TrialBroken`, `OutOfTime` and `CannotStart`.

    When it returns, nothing that the trial started lives any more.
    """
    out = place / "out"
    out.mkdir()
    directory = await copied(candidate, place / "candidate") if trial.writes else candidate
    inputs = () if trial.inputs is None else (trial.inputs.directory,)
    finished = await run_confined(
        trial.argv,
        places={"candidate": directory, "inputs": "".join(map(str, inputs)), "out": out, "seed": seed},
        cwd=directory,
        bounds=trial.bounds,
        policy=trial.policy,
        deadline=deadline,
        readable=(directory, *inputs),
        writable=(out, directory) if trial.writes else (out,),
        environment={"RATCHET_SEED": str(seed), "RATCHET_OUT": str(out)},
    )
    if not finished.ok:
        failed = blame(finished) is Outcome.FAILED
        raise (TrialFailed if failed else TrialBroken)(f"the trial: {told(finished)}")
    try:
        await in_thread(lambda: check_plain(out))
    except Trap as trap:
        raise TrialFailed(f"the trial left something that cannot be scored: {trap}") from None
    return Ran(finished, out)
