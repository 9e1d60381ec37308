"""The judge of a variant: held against the version in use, on the same cases, in the same minutes.

The author never sees it, nor the real inputs it uses: they stay in this process, and a variant runs in the sandbox and
is given one input at a time. What the author learns of a failure on such an input does not repeat it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from ratchet.judges import Candidate, Judged, Report
from ratchet.judges.comparison import Look, average, look, spread
from ratchet.judges.judge import ruled
from ratchet.judges.scratch import in_thread
from ratchet.kernel import Outcome, Verdict, fingerprint
from ratchet.ledger.tool_versions import DIFFERENCES
from ratchet.placement import LOCAL, Placement
from ratchet.tools.call import ToolCallFailed, ToolResult, ToolUse
from ratchet.tools.definition import Tool
from ratchet.tools.invocation import difference
from ratchet.tools.programs import TIMED_OUT
from ratchet.workflows.evolution.inputs import generated_inputs, smallest
from ratchet.workflows.evolution.parts import (
    SOURCE,
    UnusableVariant,
    constants,
    holds_answer,
    parts_of,
    reached_for,
    read_parts,
    same_parts,
    tells,
    with_parts,
)
from ratchet.workflows.evolution.subject import (
    CaseOrigin,
    ToolCase,
    input_hash,
    is_repeatable,
    passed,
    run_tests,
)

ALPHA = 0.01
"""The chance to call a variant better in anything when it is better in nothing, over all measures together."""
LEAST_GAIN = 0.05
"""A gain below a twentieth is not worth a new version."""
MOST_LOSS = 0.25
"""How much worse than before a variant may be in one thing for being better in another."""

# What is measured for each call, and how it is named. Less is better.
_TAKEN = {
    "cpu_ms": "CPU time",
    "wall_ms": "time",
    "peak_bytes": "memory",
    "cost_microusd": "money",
    "tokens": "tokens",
}
_SCORE, _TESTS, _EXAMPLES = "score", "tests", "examples"
CallTool = Callable[[Tool, Mapping[str, Any]], Awaitable[ToolResult]]
"""Calls a tool with values, in its sandbox. Raises `ToolCallFailed`."""
IMPROVEMENT = "improvement"
# Fewer rounds say nothing about noise.
_LEAST_ROUNDS = 2
# A generated input may mean any amount of work; one that keeps the incumbent longer says nothing.
_QUICK_SECONDS = 5.0
_MOST_SHRINKING = 60
_LONGEST_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Gain:
    """How a variant compares in one measure. `gain` is the part that is saved (0.9: a tenth is left), or for the score
    how much higher it is; below zero it is worse."""

    measure: str
    incumbent: float
    variant: float
    gain: float
    p_value: float
    better: bool
    worse: bool

    def text(self) -> str:
        if self.measure == _SCORE:
            return f"score {self.incumbent:.3g} → {self.variant:.3g} (p = {self.p_value:.2g})"
        if self.measure == _TESTS:
            return "the tool's tests pass now"
        if self.measure == _EXAMPLES:
            return f"{self.variant:.0f} of its examples pass instead of {self.incumbent:.0f}"
        how = f"{abs(self.gain):.1%} {'less' if self.gain >= 0 else 'more'} {_TAKEN[self.measure]}"
        return f"{how} (p = {self.p_value:.2g})"


def measure_gains(rounds: Sequence[Round]) -> list[Gain]:
    """Every measure that both sides have in every round."""
    samples = {name: _samples(rounds, name) for name in _TAKEN}
    known = {name: found for name, found in samples.items() if found is not None}
    if any(each.total(side, "unpriced_tokens") for each in rounds for side in MeasuredSide):
        # Who asks a model of unknown price would look cheap.
        known.pop("cost_microusd", None)
    if "cost_microusd" in known:
        # Money is what tokens are counted for.
        known.pop("tokens", None)
    scores = {side: tuple(each.score(side) for each in rounds) for side in MeasuredSide}
    share = ALPHA / (len(known) + 1)
    gains = [_saved(name, found, share) for name, found in known.items()]
    return [*gains, _scored(scores, share)]


def is_hopeless(gains: Sequence[Gain]) -> bool:
    """Whether nothing looks better so far. Ending early can only lose a good variant, never take a bad one."""
    return all(gain.gain <= (0.0 if gain.measure == _SCORE else LEAST_GAIN) for gain in gains)


def fixed_tests() -> Gain:
    """A variant that passes the tool's tests where the incumbent does not."""
    return Gain(_TESTS, 0.0, 1.0, 1.0, 0.0, better=True, worse=False)


def fixed_examples(before: int, after: int) -> Gain:
    """A variant that passes more of the tool's examples than the incumbent, and all that the incumbent passes."""
    gain = (after - before) / after
    return Gain(_EXAMPLES, float(before), float(after), gain, 0.0, better=True, worse=False)


def _samples(rounds: Sequence[Round], measure: str) -> dict[MeasuredSide, tuple[float, ...]] | None:
    """What each side took, round by round; nothing where it was not measured or nothing was taken."""
    found: dict[MeasuredSide, tuple[float, ...]] = {}
    for side in MeasuredSide:
        taken = [each.total(side, measure) for each in rounds]
        if any(not amount for amount in taken):
            return None
        found[side] = tuple(amount for amount in taken if amount is not None)
    return found


def _saved(measure: str, samples: dict[MeasuredSide, tuple[float, ...]], alpha: float) -> Gain:
    """Amounts are compared by their ratio, so that a twentieth is a twentieth of little and of much."""
    logs = {side: tuple(math.log(amount) for amount in samples[side]) for side in MeasuredSide}
    saved = [
        old - new for old, new in zip(logs[MeasuredSide.INCUMBENT], logs[MeasuredSide.VARIANT], strict=True)
    ]
    noise = spread(logs[MeasuredSide.INCUMBENT])[1]
    better = _looked(saved, -math.log1p(-LEAST_GAIN), noise, alpha)
    worse = _looked([-each for each in saved], math.log1p(MOST_LOSS), noise, alpha)
    return Gain(
        measure,
        average(samples[MeasuredSide.INCUMBENT]),
        average(samples[MeasuredSide.VARIANT]),
        1.0 - math.exp(-better.gain),
        better.p_value,
        better.p_value <= alpha,
        worse.p_value <= alpha,
    )


def _scored(scores: dict[MeasuredSide, tuple[float, ...]], alpha: float) -> Gain:
    gains = [
        new - old
        for old, new in zip(scores[MeasuredSide.INCUMBENT], scores[MeasuredSide.VARIANT], strict=True)
    ]
    looked = _looked(gains, 0.0, spread(scores[MeasuredSide.INCUMBENT])[1], alpha)
    old, new = average(scores[MeasuredSide.INCUMBENT]), average(scores[MeasuredSide.VARIANT])
    return Gain(_SCORE, old, new, new - old, looked.p_value, looked.p_value <= alpha, new < old)


def _looked(gains: Sequence[float], least: float, noise_sd: float, alpha: float) -> Look:
    """One look at all rounds."""
    return look(gains, above=least, noise_sd=noise_sd, alpha=alpha, share=1.0)


class MeasuredSide(StrEnum):
    INCUMBENT = "incumbent"
    VARIANT = "variant"


# One goes first on every other case and in every other round (ABBA): what drifts, such as the load of the machine, hits
# both alike.
_IN_TURN = ((MeasuredSide.INCUMBENT, MeasuredSide.VARIANT), (MeasuredSide.VARIANT, MeasuredSide.INCUMBENT))


@dataclass(frozen=True, slots=True)
class MeasuredAnswer:
    """What one side made of one case. `problem` says why it failed; `right` whether it is what the case asks for."""

    use: ToolUse
    right: bool
    value: Any = None
    problem: str | None = None


@dataclass(slots=True)
class Round:
    """Every case, once by each side."""

    answers: dict[MeasuredSide, list[MeasuredAnswer]] = field(
        default_factory=lambda: {side: [] for side in MeasuredSide}
    )

    def total(self, side: MeasuredSide, measure: str) -> float | None:
        """What a side took for the cases that both got right; `None` where there is none or nothing was measured."""
        pairs = zip(*(self.answers[each] for each in MeasuredSide), strict=True)
        both = [index for index, pair in enumerate(pairs) if all(answer.right for answer in pair)]
        taken = [getattr(self.answers[side][index].use, measure) for index in both]
        return None if not taken or None in taken else float(sum(taken))

    def score(self, side: MeasuredSide) -> float:
        """The part of the cases that a side got right."""
        return sum(answer.right for answer in self.answers[side]) / len(self.answers[side])


async def measure_round(
    number: int, sides: Mapping[MeasuredSide, Tool], cases: Sequence[ToolCase], call: CallTool
) -> Round:
    """Each case by both sides, one call at a time: two at once would measure each other."""
    taken = Round()
    for index, case in enumerate(cases):
        for side in _IN_TURN[(number + index) % 2]:
            taken.answers[side].append(await ask(sides[side], case, call))
    return taken


async def ask(tool: Tool, case: ToolCase, call: CallTool) -> MeasuredAnswer:
    """What a tool makes of a case. A call that fails in any way is an answer that is not right."""
    try:
        called = await call(tool, case.values)
    except ToolCallFailed as failed:
        return MeasuredAnswer(failed.use, right=False, problem=str(failed))
    problem = case.complaint(called.value)
    return MeasuredAnswer(called.use, problem is None, called.value, problem)


class VariantRefused(Exception):
    """The variant is not taken."""


@dataclass(slots=True)
class VariantFindings:
    """Everything that was found out so far; a refusal comes with what led to it."""

    hash: str | None = None
    rounds: list[Round] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    tests: dict[MeasuredSide, Verdict] = field(default_factory=dict)
    problems: list[dict[str, Any]] = field(default_factory=list)
    repaired: list[ToolCase] = field(default_factory=list)
    failing: set[str] = field(default_factory=set)
    """The examples that the incumbent fails, by the hashes of their inputs."""
    differences: int = 0
    words: set[Any] = field(default_factory=set)
    """Texts and numbers that are written into either version."""

    def note(self, case: ToolCase, answer: MeasuredAnswer) -> None:
        note = {"origin": case.origin, "problem": answer.problem, "values": dict(case.values)}
        self.problems.append({**note, "expected": case.expected, "answer": answer.value})


@dataclass(frozen=True, kw_only=True)
class VariantJudge:
    """Passes a variant that answers everything as well as the incumbent and is better in something beyond noise.

    Examples outrank the incumbent: of a tool that fails some, a variant that passes more and breaks none is better,
    whatever the incumbent answers elsewhere. Otherwise both must agree on `generated` inputs as well.

    `refused` are variants that need no measuring, by their hash: measuring what was refused until it looks better would
    make luck an improvement.
    """

    incumbent: Tool
    examples: Sequence[ToolCase]
    held_out: Sequence[ToolCase]
    repeats: int
    generated: int
    call: CallTool = field(compare=False)
    tests: str | None = None
    placement: Placement = field(default=LOCAL, compare=False)
    """Where the tests run. Calls that are compared by what they take are made on one machine."""
    refused: Mapping[str, str] = field(default_factory=dict)
    asks_models: bool = False
    """Whether the tool is a workflow that asks models, so that one input may have several answers."""
    name: str = "variant"

    @property
    def _repeatable(self) -> bool:
        return is_repeatable(self.incumbent) and not self.asks_models

    @cached_property
    def hash(self) -> str:
        return fingerprint(
            "variant 2",
            incumbent=self.incumbent.hash,
            examples=[input_hash(case.values) for case in self.examples],
            held_out=[input_hash(case.values) for case in self.held_out],
            repeats=self.repeats,
            generated=self.generated,
            tests=self.tests,
        )

    async def judge(self, candidate: Candidate) -> Judged:
        found = VariantFindings()
        try:
            parts = await in_thread(lambda: read_parts(self.incumbent, candidate.directory))
            better = await self._tried(parts, found)
        except (UnusableVariant, VariantRefused) as refused:
            return self._ruled(Outcome.FAILED, str(refused), found, 0.0)
        reason = "; ".join(gain.text() for gain in better)
        return self._ruled(Outcome.PASSED, reason, found, max(gain.gain for gain in better))

    async def _tried(self, parts: Mapping[str, str], found: VariantFindings) -> list[Gain]:
        """In what the variant is better. Raises `VariantRefused` for one that is in nothing, or is worse."""
        variant = with_parts(self.incumbent, parts)
        found.hash = variant.hash
        if same_parts(parts_of(self.incumbent), parts):
            raise VariantRefused("it changes nothing but comments or layout: improvement 0")
        if variant.hash in self.refused:
            raise VariantRefused(f"it was tried before and not taken: {self.refused[variant.hash]}")
        before = parts_of(self.incumbent)
        found.words = {word for each in (before, parts) for text in each.values() for word in constants(text)}
        await self._check_tests(parts, found)
        examples = await self._try_examples(variant, found)
        if self._repeatable and found.repaired:
            return await self._repaired(variant, parts, examples, found)
        cases = [*examples, *await self._prove(variant, found)]
        await self._measure(variant, cases, found)
        self._check_rounds(cases, found)
        better = [gain for gain in found.gains if gain.better]
        if await self._mended_tests(found):
            better.append(fixed_tests())
        if not better:
            raise VariantRefused(
                f"it is not clearly better: {'; '.join(gain.text() for gain in found.gains)}"
            )
        if worse := [gain.text() for gain in found.gains if gain.worse]:
            raise VariantRefused(f"it is worse in something else: {'; '.join(worse)}")
        if self._repeatable:
            await self._agree(variant, better, found)
        self._check_reach(parts, better, found)
        return better

    def _check_reach(self, parts: Mapping[str, str], better: Sequence[Gain], found: VariantFindings) -> None:
        """What sees the clock, files or chance may answer otherwise another day. Raises `VariantRefused`: a person has
        to look at it."""
        if SOURCE not in parts:
            return
        reached = reached_for(parts[SOURCE]) - reached_for(parts_of(self.incumbent)[SOURCE])
        if reached:
            found.differences = len(reached)
            raise VariantRefused(
                f"it is better ({'; '.join(gain.text() for gain in better)}), but uses "
                f"{', '.join(sorted(reached))}, which the version in use does not: what it answers may depend on more "
                "than its inputs"
            )

    async def _repaired(
        self, variant: Tool, parts: Mapping[str, str], examples: Sequence[ToolCase], found: VariantFindings
    ) -> list[Gain]:
        """A variant of a broken tool that passes more examples and breaks none.

        What the incumbent answers elsewhere is no model: it is wrong. Only what was scored as good is held against the
        variant, and that it must not fail where the incumbent answers.
        """
        [known], [text] = parts_of(self.incumbent).values(), parts.values()
        if any(holds_answer(text, known, case.values, case.expected) for case in found.repaired):
            raise VariantRefused("it holds the answer to an example instead of working it out")
        failed = [case for case in self.held_out if not await self._still_answers(variant, case, found)]
        if failed:
            raise VariantRefused(f"it fails {len(failed)} of {len(self.held_out)} held-out inputs")
        generated, changed = self._generated(found), False
        for case in generated:
            if not await self._still_answers(variant, case, found):
                problem = found.problems[-1]
                raise VariantRefused(f"it fails on {_shown(case.values)}: {problem['problem']}")
            changed = changed or await self._differ(variant, case) is not None
        kept_back = {input_hash(case.values) for case in self.examples if case.origin is CaseOrigin.KEPT_BACK}
        wrong = kept_back & found.failing
        if wrong and not wrong & {input_hash(case.values) for case in found.repaired}:
            raise VariantRefused(
                "it passes more of the examples that its author saw, and none that was kept back"
            )
        if generated and not changed and any(tells(case.values) for case in found.repaired):
            raise VariantRefused(
                "it answers examples otherwise and nothing beside them: it knows them instead of working them out"
            )
        await self._measure(variant, examples, found, rounds=_LEAST_ROUNDS)
        self._check_rounds(examples, found)
        better = [fixed_examples(len(examples) - len(found.repaired), len(examples))]
        self._check_reach(parts, better, found)
        return better

    async def _still_answers(self, variant: Tool, case: ToolCase, found: VariantFindings) -> bool:
        """Whether the variant answers where the incumbent does, and what was scored as good in the same way."""
        if case.praised:
            case = case.answered(case.recorded, case.recorded)
        new = await ask(variant, case, self.call)
        if new.right:
            return True
        if not case.praised and (await ask(self.incumbent, case, self.call)).problem is not None:
            return True
        found.note(case, new)
        return False

    async def _agree(self, variant: Tool, better: Sequence[Gain], found: VariantFindings) -> None:
        """Both give one answer to every generated input, or fail both. Raises `VariantRefused` with the smallest input
        that they differ on: a person or an example has to say who is right."""
        for case in self._generated(found):
            pair = await self._differ(variant, case)
            if pair is None:
                continue

            async def still(values: Mapping[str, Any]) -> bool:
                nonlocal pair
                found = await self._differ(variant, ToolCase(CaseOrigin.GENERATED, values))
                pair = found or pair
                return found is not None

            schema = self.incumbent.input_schema
            values = await smallest(dict(case.values), schema, still, most=_MOST_SHRINKING)
            old, new = pair
            found.differences = 1
            found.note(replace(case, values=values, expected=old.value), new)
            raise VariantRefused(
                f"it is better ({'; '.join(gain.text() for gain in better)}), but answers otherwise: to "
                f"{_shown(values)} it gives {_outcome(new)}, the version in use {_outcome(old)}"
            )

    def _generated(self, found: VariantFindings) -> list[ToolCase]:
        known = [case.values for case in (*self.held_out, *self.examples)]
        made = generated_inputs(
            self.incumbent, known, self.generated, seed=self.incumbent.hash, words=found.words
        )
        return [ToolCase(CaseOrigin.GENERATED, values) for values in made]

    async def _differ(self, variant: Tool, case: ToolCase) -> tuple[MeasuredAnswer, MeasuredAnswer] | None:
        """What the two make of a generated input, if that is not the same."""
        incumbent, variant = (replace(each, timeout=_quick(each)) for each in (self.incumbent, variant))
        old = await ask(incumbent, case, self.call)
        if old.use.exit_code == TIMED_OUT:
            # It says nothing, and waiting for the other side would take as long.
            return None
        new = await ask(variant, case, self.call)
        if (old.problem is None) == (new.problem is None):
            if old.problem is not None or difference(new.value, old.value) is None:
                return None
            again = await ask(incumbent, case, self.call)
            if again.problem is not None or difference(again.value, old.value) is not None:
                # The incumbent does not agree with itself: it draws lots, or looks at the clock.
                return None
        return old, new

    async def _check_tests(self, parts: Mapping[str, str], found: VariantFindings) -> None:
        if self.tests is not None:
            found.tests[MeasuredSide.VARIANT] = await run_tests(self.tests, parts[SOURCE], self.placement)
            if not passed(found.tests[MeasuredSide.VARIANT]):
                raise VariantRefused(
                    f"the tool's tests do not pass: {found.tests[MeasuredSide.VARIANT].reason}"
                )

    async def _mended_tests(self, found: VariantFindings) -> bool:
        """Whether the variant passes tests that the incumbent does not."""
        if self.tests is None:
            return False
        found.tests[MeasuredSide.INCUMBENT] = await run_tests(
            self.tests, parts_of(self.incumbent)[SOURCE], self.placement
        )
        return found.tests[MeasuredSide.INCUMBENT].outcome is Outcome.FAILED

    async def _try_examples(self, variant: Tool, found: VariantFindings) -> list[ToolCase]:
        """The examples that either side passes. Raises `VariantRefused` for a variant that breaks one."""
        cases = []
        for case in self.examples:
            old = await ask(self.incumbent, case, self.call)
            new = await ask(variant, case, self.call)
            if old.right and not new.right:
                found.note(case, new)
                if self._repeatable:
                    raise VariantRefused(f"it does not do what an example shows: {new.problem}")
            if not old.right:
                found.failing.add(input_hash(case.values))
            if new.right and not old.right:
                found.repaired.append(case)
            if old.right or new.right:
                cases.append(case)
        return cases

    async def _prove(self, variant: Tool, found: VariantFindings) -> list[ToolCase]:
        """Held-out cases, with the right answers, once the variant has given them too. It also warms both sides."""
        cases, failed = [], 0
        for given in self.held_out:
            case = await self._answered(given)
            if case is None:
                continue
            old = await ask(self.incumbent, case, self.call)
            new = await ask(variant, case, self.call)
            if old.right and not new.right:
                found.note(case, new)
                failed += 1
            if old.right or new.right:
                cases.append(case)
        if self._repeatable and failed:
            raise VariantRefused(f"it fails {failed} of {len(self.held_out)} held-out inputs")
        return cases

    async def _answered(self, case: ToolCase) -> ToolCase | None:
        """A real input with the right answer to it; nothing if that is not known any more."""
        if not self._repeatable:
            return case
        first = await ask(self.incumbent, case, self.call)
        again = await ask(self.incumbent, case, self.call)
        if first.problem is None and again.problem is None:
            return case.answered(first.value, again.value)
        return None if case.recorded is None else case.answered(case.recorded, case.recorded)

    async def _measure(
        self,
        variant: Tool,
        cases: Sequence[ToolCase],
        found: VariantFindings,
        *,
        rounds: int | None = None,
    ) -> None:
        if not cases:
            raise VariantRefused("no case is left that either version gets right")
        sides = {MeasuredSide.INCUMBENT: self.incumbent, MeasuredSide.VARIANT: variant}
        for number in range(rounds or self.repeats):
            found.rounds.append(await measure_round(number, sides, cases, self.call))
            if number + 1 >= _LEAST_ROUNDS:
                found.gains = measure_gains(found.rounds)
                if is_hopeless(found.gains):
                    return

    def _check_rounds(self, cases: Sequence[ToolCase], found: VariantFindings) -> None:
        """What the incumbent always got right, the variant must too. A model may err, but not more often."""
        if not self._repeatable:
            return
        for index, case in enumerate(cases):
            sure = all(each.answers[MeasuredSide.INCUMBENT][index].right for each in found.rounds)
            if sure and not all(each.answers[MeasuredSide.VARIANT][index].right for each in found.rounds):
                raise VariantRefused(f"it does not always give the right answer to one {case.origin}")

    def _ruled(self, outcome: Outcome, reason: str, found: VariantFindings, improvement: float) -> Judged:
        measured = {IMPROVEMENT: improvement, "rounds": float(len(found.rounds))}
        if found.differences:
            measured[DIFFERENCES] = float(found.differences)
        for gain in found.gains:
            numbers = {"incumbent": gain.incumbent, "variant": gain.variant, "gain": gain.gain}
            measured |= {f"{gain.measure}.{name}": value for name, value in numbers.items()}
            measured[f"{gain.measure}.p_value"] = gain.p_value
        return ruled(
            self,
            outcome,
            reason,
            report=Report(f"{self.name}.json", json.dumps(self._report(found)).encode()),
            # For an engine that learns from scores.
            score=found.gains[0].gain if found.gains else None,
            measurements=measured,
        )

    def _report(self, found: VariantFindings) -> dict[str, Any]:
        return {
            "incumbent": self.incumbent.hash,
            "variant": found.hash,
            "examples": len(self.examples),
            "held_out": [input_hash(case.values) for case in self.held_out],
            "tests": {side: asdict(verdict) for side, verdict in found.tests.items()},
            "problems": found.problems,
            "repaired": [input_hash(case.values) for case in found.repaired],
            "gains": [asdict(gain) for gain in found.gains],
            "rounds": [
                {side: [asdict(answer.use) for answer in each.answers[side]] for side in MeasuredSide}
                for each in found.rounds
            ],
        }


def _quick(tool: Tool) -> float:
    return _QUICK_SECONDS if tool.timeout is None else min(tool.timeout, _QUICK_SECONDS)


def _outcome(answer: MeasuredAnswer) -> str:
    return (
        _shown(answer.value) if answer.problem is None else f"no answer ({answer.problem[:_LONGEST_SHOWN]})"
    )


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:_LONGEST_SHOWN]
