"""Finds the plan in what a model answered: JSON anywhere in prose, fenced or bare."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.jsontext import decoder

LARGEST = 2 * 1024 * 1024
_MOST_FAULTS = 1000
_OPENING = re.compile(r'\{\s*"')
# An object in other people's notation: single quotes, or no quotes at all.
_ALMOST = re.compile(r"\{\s*(?:'|\w+\s*:)")
_STEPS = re.compile(r'"steps"\s*:')
_WRAPPERS = ("workflow", "plan", "workflow_spec")


def find_plan(text: str) -> dict[str, Any] | None:
    """The last object that has steps; nothing if there is no JSON at all.

    Raises `SpecError` for JSON that is broken or says no plan. Parts of a broken plan are never taken for the plan.
    """
    if len(text) > LARGEST:
        raise SpecError([f"the answer has {len(text):,} characters; at most {LARGEST:,} are read"])
    plan: dict[str, Any] | None = None
    seen = False
    fault: tuple[int, str] | None = None
    for at, found in _objects(text):
        seen = True
        if isinstance(found, str):
            fault = fault or (at, found)
        elif (one := _plan_in(found)) is not None:
            if fault and _STEPS.search(text, fault[0], at):
                break
            plan, fault = one, None
    if fault and (plan is None or _STEPS.search(text, fault[0])):
        raise SpecError([f"the JSON of the answer is broken: {fault[1]}"])
    if plan is None and (seen or _ALMOST.search(text)):
        raise SpecError(["the answer has JSON, but no object with a list of steps"])
    return plan


def _objects(text: str) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Every outermost object and where it begins; for one that is broken, what is wrong with it."""
    read = decoder(strict=False).raw_decode
    faults = 0
    opening = _OPENING.search(text)
    while opening:
        at = opening.start()
        try:
            value, end = read(text, at)
            yield at, value
        except json.JSONDecodeError as error:
            yield at, f"line {error.lineno}, column {error.colno}: {error.msg}"
            # What lies before the fault is part of the broken object.
            end = max(error.pos, at + 1)
            faults += 1
        except RecursionError:
            raise SpecError(["the JSON of the answer is nested too deeply"]) from None
        except ValueError as error:
            raise SpecError([f"the JSON of the answer is broken: {error}"]) from None
        if faults > _MOST_FAULTS:
            raise SpecError(["the answer is full of broken JSON"])
        opening = _OPENING.search(text, end)


def _plan_in(found: dict[str, Any]) -> dict[str, Any] | None:
    if "steps" in found:
        return found
    inner = [found.get(key) for key in _WRAPPERS]
    return next((one for one in inner if isinstance(one, dict) and "steps" in one), None)
