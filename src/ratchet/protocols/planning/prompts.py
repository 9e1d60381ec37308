"""What whoever plans is told. What people and repositories say stands in it as JSON: it is data and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from ratchet.asking import Tried
from ratchet.protocols.planning.plan import Plan, PlannedStep
from ratchet.protocols.planning.schema import PLAN_SCHEMA, STEP_SCHEMA
from ratchet.protocols.planning.sight import Sight

# The most characters of what others wrote; what is longer is cut.
_LONGEST_REQUEST = 40_000
_LONGEST_TEXT = 60_000


@cache
def planner_rules() -> str:
    """How a plan is made."""
    return _text("planner.md")


@cache
def decomposer_rules() -> str:
    """How a step is taken apart."""
    return _text("decomposer.md")


def plan_prompt(sight: Sight, engines: Iterable[str], before: Tried | None, *, with_schema: bool) -> str:
    """The question for a plan. `before` is the one that cannot be used."""
    form = f"type(scope): subject [protocol-{sight.number:04d}/XX]"
    parts = [
        _part("The change that is wanted", (sight.description or sight.name)[:_LONGEST_REQUEST]),
        _part(
            "The protocol, whose files will lie in its folder", {"name": sight.name, "folder": sight.folder}
        ),
        _part("The form of every commit message; XX is the number of the step", form),
        _part("What is known of the repository", sight.facts),
        _part("The checks that every step must pass, besides a review", sight.checks)
        if sight.checks
        else "No checks of this repository are known: let 00-setup.md find out how its tests are run.",
        _files(sight),
        _part("Engines that a step may name", sorted(engines)),
    ]
    if sight.guidance is not None:
        told = "What this repository says about plans; follow it where it does not contradict the rules"
        parts.append(_part(told, sight.guidance[:_LONGEST_TEXT]))
    if sight.answers:
        parts.append(_part("Questions that people have answered", sight.answers))
    return "\n\n".join([*parts, *_schema(PLAN_SCHEMA, told=with_schema), *_repair(before, "plan")])


def step_prompt(
    sight: Sight, plan: Plan, step: PlannedStep, before: Tried | None, *, with_schema: bool
) -> str:
    """The question for one step in smaller tasks."""
    parts = [
        _part("The plan", plan.plan_md[:_LONGEST_TEXT]),
        _part("The step", {"file": step.file, "content": step.content[:_LONGEST_TEXT]}),
        _part("The checks that it must pass, besides a review", sight.checks),
        _files(sight),
    ]
    return "\n\n".join([*parts, *_schema(STEP_SCHEMA, told=with_schema), *_repair(before, "file")])


def _part(title: str, value: Any) -> str:
    return f"{title}:\n\n{_as_json(value)}"


def _files(sight: Sight) -> str:
    told = "Files of the repository" + (f", without {sight.more_files:,} more" if sight.more_files else "")
    return (
        f"{told}, one on each line:\n\n{_lines(sight.files)}" if sight.files else "The repository is empty."
    )


def _lines(paths: Sequence[str]) -> str:
    return "\n".join(map(_as_json, paths))


def _schema(schema: Mapping[str, Any], *, told: bool) -> list[str]:
    wanted = "Answer with one JSON object that fits this JSON Schema, and with nothing else"
    return [_part(wanted, schema)] if told else []


def _repair(before: Tried | None, what: str) -> list[str]:
    if before is None:
        return []
    listed = "\n".join(f"- {problem}" for problem in before.problems)
    parts = [f"Your last answer:\n\n{before.answer}"] if before.answer else []
    return [*parts, f"It cannot be used:\n\n{listed}\n\nGive the whole {what} again, corrected."]


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(name: str) -> str:
    return files("ratchet.protocols.planning").joinpath(name).read_text(encoding="utf-8")
