"""Evals: calls with what they must answer. They belong to the user and lie in the ledger, out of an engine's reach."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ratchet.agents.checks.canary import answer_values, same_json, shown, started
from ratchet.agents.checks.files import NotPassed
from ratchet.agents.contract import Role
from ratchet.agents.servers import Called, Pair, ServerGaveNoAnswer, call_tool
from ratchet.config.workflow_settings import Agents
from ratchet.judges.scratch import copied
from ratchet.kernel import Misuse, fingerprint
from ratchet.ledger.evals import AgentEval

MOST_EVALS = 200
_TEXTS = ("contains", "lacks")
_EXPECTED = ("equals", *_TEXTS, "has", "fails", "within_ms")
_ANSWER = 2_000


def check_expect(expect: Any) -> Mapping[str, Any]:
    """What an answer may have to be. Raises `Misuse` for anything else."""
    if not isinstance(expect, dict) or not expect.keys() <= set(_EXPECTED):
        raise Misuse(
            f"an eval cannot expect {shown(expect)}", hint=f"an object with some of {', '.join(_EXPECTED)}"
        )
    for key, kind, word in (
        *((key, str, "a text") for key in _TEXTS),
        ("has", dict, "an object"),
        ("fails", bool, "true or false"),
        ("within_ms", int, "a whole number"),
    ):
        if key in expect and (not isinstance(expect[key], kind) or (kind is int and expect[key] is True)):
            raise Misuse(f"`{key}` of an eval is {shown(expect[key])}, not {word}")
    return expect


@dataclass(frozen=True, slots=True)
class EvalCase:
    """One call. Without `fails` the tool must not say that it failed."""

    id: int
    server: Role
    tool: str
    arguments: Mapping[str, Any]
    expect: Mapping[str, Any]

    @classmethod
    def of(cls, found: AgentEval) -> Self:
        return cls(found.id, Role(found.server), found.tool, found.arguments, found.expect)

    def described(self) -> str:
        # The call of an incident becomes an eval only with the version that answers it.
        name = f"eval {self.id}" if self.id > 0 else f"incident {-self.id}"
        return f"{name}: {self.tool}({shown(self.arguments)})"

    def unmet(self, answer: Called, milliseconds: float) -> str | None:
        """What is wrong with an answer."""
        expect, text = self.expect, answer.text[:_ANSWER]
        if answer.failed is not expect.get("fails", False):
            return f"it {'failed' if answer.failed else 'did not fail'}: {text!r}"
        values = answer_values(answer)
        if "contains" in expect and expect["contains"] not in answer.text:
            return f"it does not contain {expect['contains']!r}; it is {text!r}"
        if "lacks" in expect and expect["lacks"] in answer.text:
            return f"it contains {expect['lacks']!r}; it is {text!r}"
        if "equals" in expect and not any(same_json(expect["equals"], each) for each in values):
            return f"it does not equal {shown(expect['equals'])}; it is {text!r}"
        if "has" in expect and not any(_has(each, expect["has"]) for each in values):
            return f"it does not have {shown(expect['has'])}; it is {text!r}"
        if milliseconds > expect.get("within_ms", milliseconds):
            return f"it took {milliseconds:.0f} ms, more than {expect['within_ms']}"
        return None


def _has(value: Any, wanted: Any) -> bool:
    """Whether every key of `wanted` is in `value`, with what is wanted there."""
    if not isinstance(wanted, dict):
        return same_json(wanted, value)
    return isinstance(value, dict) and all(key in value and _has(value[key], wanted[key]) for key in wanted)


def hash_of(cases: Sequence[EvalCase]) -> str:
    """A SHA-256 over all that the evals decide by."""
    return fingerprint(
        "evals 1", cases=[(str(each.server), each.tool, each.arguments, each.expect) for each in cases]
    )


async def run_evals(
    source: Path,
    place: Path,
    cases: Sequence[EvalCase],
    settings: Agents,
    section: dict[str, Any],
    *,
    agent: str,
) -> bool:
    """Make the calls, in their order, to servers with a copy of the state in `source`; whether all answers are right.

    `section` of the report is given the result of each, and the hash of all. Raises `NotPassed` if no server starts.
    """
    results: list[dict[str, Any]] = []
    section |= {"hash": hash_of(cases), "results": results}
    directory = await copied(source, place)
    async with started(directory, settings, section, agent=agent) as pair:
        results += [await _result(pair, case, settings) for case in cases]
    section["calls"] = len(results)
    return all(each["passed"] for each in results)


async def check_evals(
    source: Path,
    place: Path,
    cases: Sequence[EvalCase],
    settings: Agents,
    section: dict[str, Any],
    *,
    agent: str,
) -> None:
    """The same, and raise `NotPassed` with every answer that is wrong."""
    if not await run_evals(source, place, cases, settings, section, agent=agent):
        wrong = [f"{each['call']}: {each['reason']}" for each in section["results"] if not each["passed"]]
        raise NotPassed("; ".join(wrong))


async def _result(pair: Pair, case: EvalCase, settings: Agents) -> dict[str, Any]:
    server = pair.runner if case.server is Role.RUNNER else pair.tuner
    result: dict[str, Any] = {"eval": case.id, "call": case.described(), "passed": False, "reason": None}
    began = time.monotonic()
    try:
        answer = await call_tool(server.url, case.tool, case.arguments, settings.call_seconds)
    except ServerGaveNoAnswer as error:
        return {**result, "reason": f"no answer: {error}"}
    milliseconds = 1000 * (time.monotonic() - began)
    reason = case.unmet(answer, milliseconds)
    return {
        **result,
        "passed": reason is None,
        "reason": reason,
        "milliseconds": round(milliseconds),
        "text": answer.text[:_ANSWER],
    }


def expected_of(result: Any) -> dict[str, Any]:
    """What an eval expects that is made from a call which was answered with `result`."""
    if result.get("failed"):
        return {"fails": True, "contains": str(result.get("text", ""))}
    structured = result.get("structured")
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        return {"equals": structured["result"]}
    return {"equals": result.get("text", "") if structured is None else structured}


def arguments_of(text: str) -> dict[str, Any]:
    """The arguments of a call that a person typed. Raises `Misuse`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misuse(f"the arguments are no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Misuse("the arguments are not an object", hint='such as \'{"name": "Ada"}\'')
    return found
