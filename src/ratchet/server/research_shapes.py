"""What the endpoints of research answer with: the same keys that the command line prints with `--json`."""

from __future__ import annotations

from typing import Annotated

from pydantic import WithJsonSchema

from ratchet.kernel import Direction, RunStatus
from ratchet.server.fields import Json, Shape

# The views have put it into words already.
Instant = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]


class Task(Shape):
    """An installed task. One that cannot be loaded has a `problem` and nothing else."""

    name: str
    description: str = ""
    score_field: str | None = None
    direction: Direction | None = None
    specialists: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    known_best: str = ""
    plain_baseline: str = ""
    problem: str | None = None


class Trial(Shape):
    """`status` is `running` until it has ended. `delta_vs_best` is its score less that of the best of then."""

    exp_id: str
    parent: str | None
    specialist: str
    domain: str
    status: str
    score: float | None
    delta_vs_best: float | None
    expected_delta: str
    hypothesis: str
    reason: str | None
    commit: str | None
    simulated: bool
    wall_ms: int | None
    started_at: Instant
    ended_at: Instant | None


class WholeTrial(Trial):
    """`certificate_problems` says what in the certificate contradicts itself, found out when it was asked for."""

    number: int
    depth: int
    notes: str
    compared_to: str | None
    measurements: Json
    evaluator: str | None
    certificate: str | None
    attempt_id: int | None
    tries: int
    imported: Json
    certificate_content: Json
    certificate_problems: list[str]


class Leader(Trial):
    measurements: dict[str, float | None]


class NearMiss(Trial):
    gain_vs_best: float
    why: str


class Node(Trial):
    """`on_line` says that it is the trial in focus or one that it came from."""

    level: int
    on_line: bool


class Tree(Shape):
    focus: int | None
    earlier_ancestors: int
    more_children: bool
    nodes: list[Node]


class Lesson(Shape):
    id: int
    specialist: str
    exp_id: str | None
    text: str
    at: Instant


class Knowledge(Shape):
    tree: Tree
    recent_activity: list[Trial]
    key_insights: list[Lesson]


class Used(Shape):
    tokens: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float | None
    wall_seconds: float


class Yield(Used):
    """`failures` are failed sessions in a row, and `problem` is what the last of them failed of."""

    specialist: str
    sessions: int
    trials: int
    keeps: int
    keeps_per_trial: float | None
    by_status: dict[str, int]
    failures: int
    problem: str | None


class SpecialistCost(Used):
    specialist: str


class Cost(Used):
    cost_usd_per_trial: float | None
    cost_usd_per_keep: float | None
    specialists: list[SpecialistCost]


class Calibrated(Shape):
    specialist: str
    trials: int
    mean_expected_delta: float
    mean_actual_delta: float
    right_direction: float


class Calibration(Shape):
    looked_at: int
    specialists: list[Calibrated]


class Baseline(Shape):
    exp_id: str
    score: float
    sd: float | None
    n: int


class Best(Shape):
    exp_id: str
    score: float | None
    delta_vs_baseline: float | None
    specialist: str | None
    hypothesis: str | None
    commit: str | None


class Standing(Shape):
    """`trials` counts what was submitted, without the baseline and without what could not be measured."""

    run: int
    name: str
    task: str
    status: RunStatus
    reason: str | None
    result: Json
    simulated: bool
    direction: Direction
    score_field: str
    keep_policy: str
    trials: int
    by_status: dict[str, int]
    in_flight: list[str]
    baseline: Baseline | None
    best: Best | None
    plain_baseline: str | None
    known_best: str | None
    usage: Used
    active_seconds: float
    seconds_since_keep: float
    last_keep: str
    specialists: list[Yield]
