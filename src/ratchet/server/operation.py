"""Requests that are made from operations: where each parameter stands, and the schema of what is answered."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from http import HTTPStatus
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from fastapi import APIRouter, Form, Path, Query, Response
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, JsonValue, create_model

from ratchet.operations import Listing, Operation, Param, Parameter, is_time, parameter_of
from ratchet.server.fields import (
    Foreign,
    Json,
    Limit,
    Moment,
    NamedPage,
    NamePaging,
    Page,
    Paging,
    Secret,
    Shape,
    Text,
    no_recording,
    order_paging,
    printable,
    without_nul,
)
from ratchet.server.problems import documented
from ratchet.server.project_scope import KINDS, check_names, enter
from ratchet.server.service import Access, Api

_NO_CONTENT = 204
_EMPTY = inspect.Parameter.empty


class Body(BaseModel):
    """What an operation takes besides what is in the path."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def router_of(tag: str, operations: Iterable[Operation[..., Any]], **more: Any) -> APIRouter:
    """The requests of operations on one noun."""
    router = APIRouter(tags=[tag], **more)
    add_operations(router, operations)
    return router


def add_operations(router: APIRouter, operations: Iterable[Operation[..., Any]]) -> None:
    for each in operations:
        nothing = each.status == _NO_CONTENT
        router.add_api_route(
            each.path,
            endpoint_of(each),
            methods=[each.method],
            status_code=each.status,
            response_model=None if nothing else schema_of(each),
            responses=documented(*_errors(each)),
        )


def _errors(operation: Operation[..., Any]) -> Iterator[int]:
    if "{" in operation.path:
        yield HTTPStatus.NOT_FOUND
    if not operation.reads:
        yield HTTPStatus.CONFLICT


def schema_of(operation: Operation[..., Any]) -> Any:
    """The schema of what an operation answers."""
    answers = operation.answers
    is_list = get_origin(answers) is Listing
    plain = get_args(answers)[0] if is_list else answers
    item = _outside("", operation.translated.type if operation.translated else plain)
    if not is_list:
        return item
    if not operation.enveloped:
        return list[item]  # type: ignore[valid-type]
    return NamedPage[item] if operation.takes_names else Page[item]  # type: ignore[valid-type]


@cache
def shape_of(kind: type) -> type[Shape]:
    """The schema of a dataclass. What is under `at` and `…_at` is a moment, and what may be anything is JSON.

    `metadata` of a field is what its schema says besides: a `description`, `examples`.
    """
    hints = get_type_hints(kind)
    described: dict[str, Any] = {
        each.name: (_outside(each.name, hints[each.name]), Field(_default(each), **each.metadata))
        for each in dataclasses.fields(kind)
    }
    # A dataclass without a docstring has its signature there.
    doc = None if (kind.__doc__ or "").startswith(f"{kind.__name__}(") else kind.__doc__
    name = kind.__name__.removesuffix("Answer")
    return create_model(name, __base__=Shape, __doc__=doc, __module__=kind.__module__, **described)


def shown(answer: Any) -> Shape:
    """A dataclass as the API shows it."""
    kind: Any = type(answer)
    return shape_of(kind).model_validate(answer)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return ... if field.default is dataclasses.MISSING else field.default


def _outside(name: str, hint: Any) -> Any:
    """A type as those outside see it."""
    if hint is Any or get_origin(hint) is Mapping:
        return Json
    if hint is str:
        return Foreign
    if hint is datetime or (hint is int and is_time(name)):
        return Moment
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return shape_of(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Listing:
        return Page[_outside("", inner[0])]  # type: ignore[misc]
    if origin in (Union, UnionType):
        return Union[tuple(_outside(name, each) for each in inner)]  # noqa: UP007  made from a tuple
    if origin is dict:
        return dict[str, _outside("", inner[1])]  # type: ignore[misc]
    return list[_outside(name, inner[0])] if origin in (list, tuple) else hint  # type: ignore[misc]


def endpoint_of(operation: Operation[..., Any]) -> Any:
    """The function that FastAPI calls. It reads what that takes from the signature."""
    body = body_of(operation)

    def called(given: dict[str, Any]) -> Any:
        api, sent, _ = given.pop("api"), given.pop("body", None), given.pop("response")
        return operation(api, **joined(operation, given | _sent(operation, api, sent)))

    def answered(response: Response, answer: Any) -> Any:
        if operation.location is not None:
            response.headers["Location"] = operation.location.format(it=answer)
        if operation.status == _NO_CONTENT:
            return None
        answer = operation.translated_answer(answer)
        return answer.items if isinstance(answer, Listing) and not operation.enveloped else answer

    def sync_endpoint(**given: Any) -> Any:
        return answered(given["response"], called(given))

    async def async_endpoint(**given: Any) -> Any:
        return answered(given["response"], await called(given))

    endpoint: Any = async_endpoint if operation.is_async else sync_endpoint
    endpoint.__name__ = operation.function.__name__
    endpoint.__doc__ = operation.help
    endpoint.__signature__ = inspect.Signature(list(_signature(operation, body)))
    return endpoint


def joined(operation: Operation[..., Any], values: dict[str, Any]) -> dict[str, Any]:
    """The values with the name of what is within something as one."""
    for each in operation.parameters.values():
        if each.about.within is not None and (place := values.pop(each.about.within)) is not None:
            values[each.name] = f"{place}/{values[each.name]}"
    return values


def _sent(operation: Operation[..., Any], api: Access, body: Any) -> dict[str, Any]:
    """What came in the body. What has a number there must be open to the caller, as what has one in the path."""
    if not isinstance(body, Body):
        return {name: body for name, each in operation.parameters.items() if each.about.whole}
    sent = {name: getattr(body, name) for name in body.model_fields_set}
    check_names(api, operation, sent)
    numbers = {KINDS[name]: number for name, number in sent.items() if name in KINDS and number is not None}
    if numbers:
        with api.read() as tx:
            for kind, number in numbers.items():
                enter(api, tx, kind, number)
    return sent


def _signature(operation: Operation[..., Any], body: Any) -> Iterator[inspect.Parameter]:
    def taken(name: str, hint: Any, default: Any = _EMPTY) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)

    yield taken("api", Api)
    yield taken("response", Response)
    if operation.takes_window:
        yield taken("window", Paging)
    if operation.takes_names:
        yield taken("window", NamePaging)
    if operation.takes_order:
        yield taken("window", order_paging(operation.limit))
    for each in operation.parameters.values():
        if in_path(operation, each):
            yield taken(each.name, path_hint(each))
            if each.about.within is not None:
                yield taken(each.about.within, within_hint(each), None)
        elif each.name == "limit" and each.about.most is None:
            yield taken(each.name, Limit, each.default)
        elif body is None or each.about.query:
            yield taken(each.name, Annotated[_checked(each), Query(**_bounds(each))], each.default)
    if body is not None:
        fields = getattr(body, "model_fields", None)
        optional = fields is not None and not any(each.is_required() for each in fields.values())
        yield taken("body", body | None if optional else body, None if optional else _EMPTY)


def form_hints(operation: Operation[..., Any]) -> Iterator[tuple[str, Any, Any]]:
    """What a form of the operation takes: the name, the type and the default of each value."""
    for each in operation.parameters.values():
        if in_path(operation, each):
            yield each.name, path_hint(each), _EMPTY
            if each.about.within is not None:
                yield each.about.within, within_hint(each), None
        elif each.type in (str, int, float, bool, list[str]) or each.choices:
            yield each.name, Annotated[_checked(each), Form(**_outer_bounds(each))], each.default


def path_hint(parameter: Parameter) -> Any:
    """The type of a parameter that is in the path. A strange name is not wrong there: it names nothing."""
    return Annotated[parameter.type, Path(**_bounds(parameter))]


def within_hint(parameter: Parameter) -> Any:
    """The type of the query parameter that says in what something is."""
    about = f"the {parameter.about.within} that brings the {parameter.name} with it"
    return Annotated[str | None, Query(min_length=1, max_length=200, description=about)]


def in_path(operation: Operation[..., Any], parameter: Parameter) -> bool:
    return parameter.name in operation.places


@cache
def body_of(operation: Operation[..., Any]) -> Any:
    """What a request of the operation has in its body, if it has one."""
    whole = next((each for each in operation.parameters.values() if each.about.whole), None)
    if whole is not None:
        return _checked(whole)
    sent = [
        each
        for each in operation.parameters.values()
        if not in_path(operation, each) and not each.about.query
    ]
    if not sent or operation.method not in ("POST", "PUT", "PATCH"):
        return None
    described: dict[str, Any] = {
        each.name: (
            _checked(each),
            Field(... if each.required else each.default, **_outer_bounds(each), **_other_name(each)),
        )
        for each in sent
    }
    noun, _, verb = operation.name.partition(" ")
    return create_model(
        f"{verb} {noun.removesuffix('s')}".title().replace(" ", ""), __base__=Body, **described
    )


def _other_name(parameter: Parameter) -> dict[str, Any]:
    also = parameter.about.also
    return {} if also is None else {"validation_alias": AliasChoices(parameter.name, also)}


def _bounds(parameter: Parameter) -> dict[str, Any]:
    about = parameter.about
    found = {
        "gt": about.above,
        "ge": about.least,
        "le": about.most,
        **({} if get_origin(parameter.type) is list else _lengths(about)),
        "description": about.outside or about.help,
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def _lengths(about: Param) -> dict[str, Any]:
    return {"min_length": about.shortest, "max_length": about.longest}


def _outer_bounds(parameter: Parameter) -> dict[str, Any]:
    """Those of the whole. The length of a text that may be left out is that of the text: `_checked` has it."""
    inner = ("min_length", "max_length") if parameter.may_be_none and parameter.type is str else ()
    return {name: value for name, value in _bounds(parameter).items() if name not in inner}


def _checked(parameter: Parameter) -> Any:
    kind = _inside(parameter.type, parameter.about)
    if parameter.choices and isinstance(kind, type):
        kind = Annotated[kind, Field(strict=False)]
    if kind is str:
        about = parameter.about
        length = (
            Field(min_length=about.shortest, max_length=about.longest) if parameter.may_be_none else Field()
        )
        kind = Annotated[str, length, AfterValidator(printable if about.printable else without_nul)]
    if parameter.about.engine:
        kind = Annotated[kind, AfterValidator(no_recording)]
    return kind | None if parameter.may_be_none else kind


def _inside(kind: Any, about: Param) -> Any:
    """A type with what is inside of it checked, too."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return JsonValue
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _input_of(kind)
    if origin is list and inner[0] is str:
        check = AfterValidator(printable if about.printable else without_nul)
        return list[Annotated[str, Field(**_lengths(about)), check]]
    if origin is list:
        return list[_inside(inner[0], about)]  # type: ignore[misc]
    if origin is dict and inner[1] in (str, str | None):
        return dict[Text, Text if inner[1] is str else Secret]  # type: ignore[misc]
    if origin is dict:
        return dict[str, _inside(inner[1], about)]  # type: ignore[misc]
    if origin in (Union, UnionType):
        return Union[tuple(_inside(each, about) for each in inner)]  # noqa: UP007  made from a tuple
    return kind


@cache
def _input_of(kind: type) -> type[Body]:
    """What a request has in the place of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    described: dict[str, Any] = {}
    for each in dataclasses.fields(kind):
        parameter = parameter_of(each.name, hints[each.name])
        described[each.name] = (_checked(parameter), Field(_default(each), **_bounds(parameter)))
    return create_model(kind.__name__, __base__=Body, **described)
