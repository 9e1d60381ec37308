"""The judge of a variant: held against the version in use, on the same cases, in the same minutes.

The author never sees it, nor the real inputs it uses: they stay in this process, and a variant runs in the sandbox and
is given one input at a time. What the author is told of a failure on such an input does not repeat it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from ratchet.judges import Candidate, Judged, Report
from ratchet.judges.fingerprint import fingerprint
from ratchet.judges.judge import ruled
from ratchet.judges.scratch import in_thread
from ratchet.kernel import Outcome, Verdict
from ratchet.tools.definition import Tool
from ratchet.workflows.evolution.cases import Case, Origin, input_hash, is_repeatable
from ratchet.workflows.evolution.gains import Gain, is_hopeless, measure_gains, mended_tests
from ratchet.workflows.evolution.own_tests import passed, run_tests
from ratchet.workflows.evolution.parts import SOURCE, Unfit, parts_of, read_parts, same_parts, with_parts
from ratchet.workflows.evolution.rounds import CallTool, Round, Side, ask, measure_round

IMPROVEMENT = "improvement"
# Fewer rounds say nothing about noise.
_LEAST_ROUNDS = 2


class Refused(Exception):
    """The variant is not taken."""


@dataclass(slots=True)
class Findings:
    """Everything that was found out so far; a refusal comes with what led to it."""

    hash: str | None = None
    rounds: list[Round] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    tests: dict[Side, Verdict] = field(default_factory=dict)
    problems: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class VariantJudge:
    """Passes a variant that answers everything as well as the incumbent and is better in something beyond noise.

    `refused` are variants that need no measuring, by their hash: measuring what was refused until it looks better would
    make luck an improvement.
    """

    incumbent: Tool
    examples: Sequence[Case]
    held_out: Sequence[Case]
    repeats: int
    call: CallTool = field(compare=False)
    tests: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    name: str = "variant"

    @cached_property
    def hash(self) -> str:
        return fingerprint(
            "variant 1",
            incumbent=self.incumbent.hash,
            examples=[input_hash(case.values) for case in self.examples],
            held_out=[input_hash(case.values) for case in self.held_out],
            repeats=self.repeats,
            tests=self.tests,
        )

    async def judge(self, candidate: Candidate) -> Judged:
        found = Findings()
        try:
            parts = await in_thread(lambda: read_parts(self.incumbent, candidate.directory))
            better = await self._tried(parts, found)
        except (Unfit, Refused) as refused:
            return self._ruled(Outcome.FAILED, str(refused), found, 0.0)
        reason = "; ".join(gain.told() for gain in better)
        return self._ruled(Outcome.PASSED, reason, found, max(gain.gain for gain in better))

    async def _tried(self, parts: Mapping[str, str], found: Findings) -> list[Gain]:
        """In what the variant is better. Raises `Refused` for one that is in nothing, or is worse."""
        variant = with_parts(self.incumbent, parts)
        found.hash = variant.hash
        if same_parts(parts_of(self.incumbent), parts):
            raise Refused("it changes nothing but comments or layout: improvement 0")
        if variant.hash in self.refused:
            raise Refused(f"it was tried before and not taken: {self.refused[variant.hash]}")
        await self._check_tests(parts, found)
        cases = await self._prove(variant, found)
        await self._measure(variant, cases, found)
        self._check_rounds(cases, found)
        better = [gain for gain in found.gains if gain.better]
        if await self._mended_tests(found):
            better.append(mended_tests())
        if not better:
            raise Refused(f"it is not clearly better: {'; '.join(gain.told() for gain in found.gains)}")
        if worse := [gain.told() for gain in found.gains if gain.worse]:
            raise Refused(f"it is worse in something else: {'; '.join(worse)}")
        return better

    async def _check_tests(self, parts: Mapping[str, str], found: Findings) -> None:
        if self.tests is not None:
            found.tests[Side.VARIANT] = await run_tests(self.tests, parts[SOURCE])
            if not passed(found.tests[Side.VARIANT]):
                raise Refused(f"the tool's tests do not pass: {found.tests[Side.VARIANT].reason}")

    async def _mended_tests(self, found: Findings) -> bool:
        """Whether the variant passes tests that the incumbent does not."""
        if self.tests is None:
            return False
        found.tests[Side.INCUMBENT] = await run_tests(self.tests, parts_of(self.incumbent)[SOURCE])
        return found.tests[Side.INCUMBENT].outcome is Outcome.FAILED

    async def _prove(self, variant: Tool, found: Findings) -> list[Case]:
        """The cases, with the right answers, once the variant has given them too. These calls also warm both sides."""
        cases = [case for case in self.examples if await self._proved(variant, case, found)]
        for given in self.held_out:
            case = await self._answered(given)
            if case is not None and await self._proved(variant, case, found):
                cases.append(case)
        held_out = [problem for problem in found.problems if problem["origin"] == Origin.HELD_OUT]
        if is_repeatable(variant) and found.problems:
            if len(held_out) < len(found.problems):
                raise Refused(f"it does not do what an example shows: {found.problems[0]['problem']}")
            raise Refused(f"it fails {len(held_out)} of {len(self.held_out)} held-out inputs")
        return cases

    async def _answered(self, case: Case) -> Case | None:
        """A real input with the right answer to it; nothing if that is not known any more."""
        if not is_repeatable(self.incumbent):
            return case
        first = await ask(self.incumbent, case, self.call)
        again = await ask(self.incumbent, case, self.call)
        if first.problem is None and again.problem is None:
            return case.answered(first.value, again.value)
        return None if case.recorded is None else case.answered(case.recorded, case.recorded)

    async def _proved(self, variant: Tool, case: Case, found: Findings) -> bool:
        """Whether either gets the case right, so that it can be used. What only the incumbent does is noted."""
        old = await ask(self.incumbent, case, self.call)
        new = await ask(variant, case, self.call)
        if old.right and not new.right:
            note = {"origin": case.origin, "problem": new.problem, "values": dict(case.values)}
            found.problems.append({**note, "expected": case.expected, "answer": new.value})
        return old.right or new.right

    async def _measure(self, variant: Tool, cases: Sequence[Case], found: Findings) -> None:
        if not cases:
            raise Refused("no case is left that either version gets right")
        sides = {Side.INCUMBENT: self.incumbent, Side.VARIANT: variant}
        for number in range(self.repeats):
            found.rounds.append(await measure_round(number, sides, cases, self.call))
            if number + 1 >= _LEAST_ROUNDS:
                found.gains = measure_gains(found.rounds)
                if is_hopeless(found.gains):
                    return

    def _check_rounds(self, cases: Sequence[Case], found: Findings) -> None:
        """What the incumbent always got right, the variant must too. A model may err, but not more often."""
        if not is_repeatable(self.incumbent):
            return
        for index, case in enumerate(cases):
            sure = all(each.answers[Side.INCUMBENT][index].right for each in found.rounds)
            if sure and not all(each.answers[Side.VARIANT][index].right for each in found.rounds):
                raise Refused(f"it does not always give the right answer to one {case.origin}")

    def _ruled(self, outcome: Outcome, reason: str, found: Findings, improvement: float) -> Judged:
        measured = {IMPROVEMENT: improvement, "rounds": float(len(found.rounds))}
        for gain in found.gains:
            numbers = {"incumbent": gain.incumbent, "variant": gain.variant, "gain": gain.gain}
            measured |= {f"{gain.measure}.{name}": value for name, value in numbers.items()}
            measured[f"{gain.measure}.p_value"] = gain.p_value
        return ruled(
            self,
            outcome,
            reason,
            report=Report(f"{self.name}.json", json.dumps(self._report(found)).encode()),
            # What an engine that learns from scores is told.
            score=found.gains[0].gain if found.gains else None,
            measurements=measured,
        )

    def _report(self, found: Findings) -> dict[str, Any]:
        return {
            "incumbent": self.incumbent.hash,
            "variant": found.hash,
            "examples": len(self.examples),
            "held_out": [input_hash(case.values) for case in self.held_out],
            "tests": {side: asdict(verdict) for side, verdict in found.tests.items()},
            "problems": found.problems,
            "gains": [asdict(gain) for gain in found.gains],
            "rounds": [
                {side: [asdict(answer.use) for answer in each.answers[side]] for side in Side}
                for each in found.rounds
            ],
        }
