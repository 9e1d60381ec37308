"""Forms made from what a workflow, a tool or an agent takes, the values that people fill in, and buttons that are made
from operations.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from starlette.responses import Response

from ratchet.flowkit.errors import SpecError
from ratchet.flowkit.inputs import TYPES, has_type
from ratchet.flowkit.jsontext import load_json
from ratchet.flowkit.spec import WorkflowInput
from ratchet.kernel import IllegalTransition, Misuse, RunStatus
from ratchet.kernel.status import check_transition
from ratchet.operations import Operation
from ratchet.server.console.access import ROOT, Acting
from ratchet.server.console.page import Page, View
from ratchet.server.operation import form_hints, joined

# Fields of the form have names of their own, whatever a tool calls its inputs.
_PREFIX = "input."
MORE = "more"
_LONGEST_CHOICES = 200
_LONGEST_TEXT = 2_000


@dataclass(frozen=True, slots=True)
class Field:
    """One value to fill in. `type` is a type of JSON Schema, or `any` for JSON; `value` is what stands in it at first.

    `control` says how it is asked for: `text`, `line`, `number`, `choice` or `json`.
    """

    name: str
    type: str
    required: bool
    description: str
    value: str
    choices: tuple[str, ...]
    control: str

    @property
    def field(self) -> str:
        return f"{_PREFIX}{self.name}"

    def data(self) -> dict[str, Any]:
        return {**asdict(self), "field": self.field}


def fields_of_workflow(
    inputs: Iterable[WorkflowInput], given: Mapping[str, str] | None = None
) -> list[Field]:
    return [
        _field(
            each.name,
            {"type": each.type, "description": each.description, "default": each.default, **each.extra},
            each.required and each.default is None,
            given,
        )
        for each in inputs
    ]


def fields_of_schema(schema: Mapping[str, Any] | None, given: Mapping[str, str] | None = None) -> list[Field]:
    """A field for each property of an object's schema."""
    properties = (schema or {}).get("properties")
    required = (schema or {}).get("required")
    needed = required if isinstance(required, list) else []
    named = properties.items() if isinstance(properties, Mapping) else ()
    return [_field(str(name), each, name in needed, given) for name, each in named]


def takes_more(schema: Mapping[str, Any] | None) -> bool:
    """Whether there may be other properties than those that the schema names."""
    return not schema or (
        not schema.get("properties") and schema.get("additionalProperties", True) is not False
    )


def given_texts(form: Mapping[str, Any]) -> dict[str, str]:
    """What was filled in, by the names of the inputs. Files are no values."""
    return {
        key.removeprefix(_PREFIX): value
        for key, value in form.items()
        if key.startswith(_PREFIX) and isinstance(value, str)
    }


def read_values(fields: Iterable[Field], form: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a filled-in form: what was left empty is left out. Raises `Misuse` with all that is wrong."""
    texts, problems, values = given_texts(form), [], _more(form)
    known = {each.name: each for each in fields}
    for name, text in texts.items():
        field = known.get(name)
        if field is None:
            problems.append(f"there is no input {name[:80]!r}")
        elif text.strip() or (field.required and field.type == "string"):
            try:
                values[name] = _value(field, text)
            except SpecError:
                problems.append(f"{name} must be {_said(field.type)}, not {text[:80]!r}")
    if problems:
        raise Misuse("; ".join(problems), hint="go back, correct it, and send it again")
    return values


def _more(form: Mapping[str, Any]) -> dict[str, Any]:
    text = form.get(MORE)
    if not isinstance(text, str) or not text.strip():
        return {}
    try:
        found = load_json(text)
    except SpecError as error:
        raise Misuse(f"the inputs are no JSON: {error}", hint='write an object, such as {"n": 3}') from None
    if not isinstance(found, dict):
        raise Misuse("the inputs are no JSON object", hint='write one, such as {"n": 3}')
    return found


def _value(field: Field, text: str) -> Any:
    """Raises `SpecError`."""
    if field.type == "string":
        # A browser sends line breaks as two characters.
        return text.replace("\r\n", "\n")
    value = load_json(text)
    if field.type in TYPES and not has_type(value, field.type):
        raise SpecError([f"{text[:80]!r} is no {field.type}"])
    return value


def _field(name: str, schema: Any, required: bool, given: Mapping[str, str] | None) -> Field:
    found = schema if isinstance(schema, Mapping) else {}
    kind = _type(found)
    choices = _choices(found, kind)
    default = found.get("default")
    value = "" if default is None else _text(default, kind, as_choice=bool(choices))
    if given is not None:
        value = given.get(name, "")
    described = found.get("description")
    return Field(
        name=name,
        type=kind,
        required=required,
        description=described[:_LONGEST_TEXT] if isinstance(described, str) else "",
        value=value,
        choices=choices,
        control="choice" if choices else _control(kind, found),
    )


def _type(schema: Mapping[str, Any]) -> str:
    """The one type that a schema names, beside null, or that all its choices have; `any` for several or none."""
    own = schema.get("type")
    listed = own if isinstance(own, list) else [own]
    for alternatives in (schema.get("anyOf"), schema.get("oneOf")):
        if isinstance(alternatives, list):
            listed += [each.get("type") for each in alternatives if isinstance(each, Mapping)]
    chosen = schema.get("enum")
    if listed == [None] and isinstance(chosen, list) and all(isinstance(each, str) for each in chosen):
        return "string"
    named = [each for each in listed if isinstance(each, str) and each != "null"]
    return named[0] if len(named) == 1 and named[0] in TYPES else "any"


def _choices(schema: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    found = schema.get("enum")
    if kind == "boolean":
        return ("true", "false")
    if not isinstance(found, list) or not 0 < len(found) <= _LONGEST_CHOICES:
        return ()
    return tuple(_text(each, kind, as_choice=True) for each in found)


def _control(kind: str, schema: Mapping[str, Any]) -> str:
    if kind in ("number", "integer"):
        return "number"
    if kind == "string":
        return "line" if "maxLength" in schema or "pattern" in schema or "format" in schema else "text"
    return "json"


def _text(value: Any, kind: str, *, as_choice: bool = False) -> str:
    if kind == "string" and isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=None if as_choice else 2, default=str)


def _said(kind: str) -> str:
    if kind == "any":
        return "JSON"
    return f"an {kind}" if kind[:1] in "aoi" else f"a {kind}"


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
    def done_with(page: View, answer: Any, given: Mapping[str, Any]) -> Response:
        done = operation.report(answer)
        there = page.request.path_params
        following = (
            back.format(it=answer, **{**given, **there}) if isinstance(back, str) else back(page, **there)
        )
        return page.done(f"{done[:1].upper()}{done[1:]}.", f"{ROOT}{following}")

    def sync_button(page: Page, _: Acting, **given: Any) -> Response:
        return done_with(page, operation(page.api, **joined(operation, given)), given)

    async def async_button(page: Page, _: Acting, **given: Any) -> Response:
        answer = await operation(page.api, **joined(operation, given))
        return await run_in_threadpool(done_with, page, answer, given)

    button: Any = async_button if operation.is_async else sync_button
    kind, required = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    hints = [("page", Page, required), ("_", Acting, required), *form_hints(operation)]
    button.__signature__ = inspect.Signature(
        [inspect.Parameter(name, kind, annotation=hint, default=default) for name, hint, default in hints]
    )
    return button
