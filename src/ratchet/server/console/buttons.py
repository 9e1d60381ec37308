"""Buttons of the console that are made from operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from ratchet.operations import Operation
from ratchet.server.console.acting import Acting
from ratchet.server.console.door import ROOT
from ratchet.server.console.rendering import Page
from ratchet.server.operation import path_hint


def add_buttons(
    router: APIRouter,
    operations: Iterable[Operation[..., Any]],
    place: str,
    back: str | Callable[..., str] | None = None,
) -> None:
    """A form for each operation at `PLACE/actions/VERB`. It tells what was done and leads `back`, or to the place.

    Where that is a function, it is given the view and what is in the path.
    """
    for each in operations:
        verb = each.path.rpartition("/")[2]
        router.add_api_route(f"{place}/actions/{verb}", _button(each, back or place), methods=["POST"])


def _button(operation: Operation[..., Any], back: str | Callable[..., str]) -> Any:
    [(name, parameter)] = [
        (name, each) for name, each in operation.parameters.items() if f"{{{name}}}" in operation.path
    ]

    def button(page: Page, **given: Any) -> Response:
        answer = operation(page.api, **{name: given[name]})
        done = operation.told(answer)
        there = page.request.path_params
        following = back.format(**there) if isinstance(back, str) else back(page, **there)
        return page.done(f"{done[:1].upper()}{done[1:]}.", f"{ROOT}{following}")

    kind = inspect.Parameter.KEYWORD_ONLY
    hints = {"page": Page, "_": Acting, name: path_hint(parameter)}
    button.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(each, kind, annotation=hint) for each, hint in hints.items()]
    )
    return button
