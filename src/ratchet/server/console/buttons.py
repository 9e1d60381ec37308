"""Buttons of the console that are made from operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from ratchet.kernel import IllegalTransition, RunStatus
from ratchet.kernel.status import check_transition
from ratchet.operations import Operation
from ratchet.server.console.access import ROOT, Acting
from ratchet.server.console.page import Page
from ratchet.server.operation import form_hints, joined

_RESUMED = (RunStatus.PAUSED, RunStatus.BLOCKED)


def run_controls(run_id: int, status: RunStatus) -> dict[str, str | None]:
    """For each action why it cannot be done now; None where it can."""
    return {
        "pause": _why(run_id, status, RunStatus.PAUSED),
        "resume": (
            None
            if status in _RESUMED
            else f"run {run_id} is {status}; only a {' or '.join(_RESUMED)} run can be resumed"
        ),
        "cancel": _why(run_id, status, RunStatus.CANCELLED),
    }


def _why(run_id: int, status: RunStatus, wanted: RunStatus) -> str | None:
    try:
        check_transition("run", run_id, status, wanted)
    except IllegalTransition as error:
        return str(error)
    return None


def add_buttons(
    router: APIRouter,
    operations: Iterable[Operation[..., Any]] | Mapping[str, Operation[..., Any]],
    place: str,
    back: str | Callable[..., str] | None = None,
) -> None:
    """A form for each operation at `PLACE/actions/VERB`, or at the place without a verb.

    It tells what was done and leads `back`, or to the place.

    `back` is filled with what is in the path and the form, and with the answer as `it`. Where it is a function, it is
    given the view and what is in the path.
    """
    named = (
        operations
        if isinstance(operations, Mapping)
        else {each.path.rpartition("/")[2]: each for each in operations}
    )
    for verb, each in named.items():
        there = f"{place}/actions/{verb}" if verb else place
        router.add_api_route(there, _button(each, back or place), methods=["POST"])


def _button(operation: Operation[..., Any], back: str | Callable[..., str]) -> Any:
    def button(page: Page, _: Acting, **given: Any) -> Response:
        answer = operation(page.api, **joined(operation, given))
        done = operation.report(answer)
        there = page.request.path_params
        following = (
            back.format(it=answer, **{**given, **there}) if isinstance(back, str) else back(page, **there)
        )
        return page.done(f"{done[:1].upper()}{done[1:]}.", f"{ROOT}{following}")

    kind, required = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    hints = [("page", Page, required), ("_", Acting, required), *form_hints(operation)]
    button.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind, annotation=hint, default=default) for name, hint, default in hints]
    )
    return button
