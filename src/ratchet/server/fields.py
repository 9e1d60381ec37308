"""The kinds of values that come in and go out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Depends, Path, Query, Request, Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from ratchet.engines.registry import names_recording
from ratchet.kernel import sendable
from ratchet.operations import Listing, NameWindow, OrderWindow, Window

# The largest number that both databases can hold.
MAX_ID = 2**63 - 1
_DEPTH = 64

Id = Annotated[int, Path(ge=1, le=MAX_ID)]
IdFilter = Annotated[int | None, Query(ge=1, le=MAX_ID)]


def without_nul(text: str | None) -> str | None:
    if text is not None and "\x00" in text:
        raise ValueError("it contains a NUL character, which no database text can")
    return text


def printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it contains control characters")
    return text


def no_recording(value: Any) -> Any:
    """An engine, or a table with engines in it, as a caller may name it who is not on this machine."""
    if names_recording(value):
        raise ValueError("a recording is a file on the server's disk, which cannot be named over HTTP")
    return value


# What a person would write on one line.
Text = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable)]
Secret = Annotated[str | None, Field(max_length=4096, description="null removes it")]
TextFilter = Annotated[str | None, AfterValidator(without_nul), Query(max_length=200)]


def _moment(value: Any) -> Any:
    if isinstance(value, int):
        return datetime.fromtimestamp(value / 1000, UTC)
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _sendable(value: Any, depth: int = _DEPTH) -> Any:
    """A stored JSON value that can be sent: without lone surrogates, and what lies very deep as text."""
    if isinstance(value, str):
        return sendable(value)
    if not isinstance(value, dict | list):
        return value
    if depth == 0:
        return json.dumps(value)
    if isinstance(value, dict):
        return {_sendable(key): _sendable(item, depth - 1) for key, item in value.items()}
    return [_sendable(item, depth - 1) for item in value]


# Whole milliseconds in the ledger, ISO-8601 in UTC outside.
Moment = Annotated[datetime, BeforeValidator(_moment)]
Json = Annotated[Any, BeforeValidator(_sendable)]
# Text from programs that nobody has checked.
Foreign = Annotated[str, BeforeValidator(_sendable)]


class Shape(BaseModel):
    """What goes out, read from the attributes of the ledger's own values."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


MAX_LIMIT = 500
Row = TypeVar("Row")
Item = TypeVar("Item")

Limit = Annotated[
    int,
    AfterValidator(lambda limit: max(1, min(limit, MAX_LIMIT))),
    Query(description=f"how many at most; taken as 1 to {MAX_LIMIT}"),
]
Before = Annotated[int | None, Query(ge=1, le=MAX_ID, description="continue where `next` of a page said")]


After = Annotated[int, Query(ge=-1, le=MAX_ID, description="only those behind this one")]


class Page(BaseModel, Generic[Item]):
    items: list[Item]
    next: int | None = Field(description="pass it as `before` for the next page; null at the end")


Cut = Listing


@dataclass(frozen=True, slots=True, kw_only=True)
class Pager(Window):
    """Which page a request asked for."""

    request: Request
    response: Response

    def cut(self, rows: Sequence[Row], *, number: str = "id", cursor: str = "before") -> Listing[Row]:
        """The page in `rows`, with a `Link` to the next one. `number` is the attribute or key that pages go by."""
        page = Window.cut(self, rows, number=number)
        if page.next is not None:
            link_next(self.request, self.response, cursor, page.next, self.limit)
        return page


def link_next(request: Request, response: Response, cursor: str, following: int | str, limit: int) -> None:
    """Tell in the headers where the next page is."""
    url = request.url.include_query_params(**{cursor: following, "limit": limit})
    response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
    response.headers[f"X-Next-{cursor.capitalize()}"] = str(following)


async def _pager(request: Request, response: Response, before: Before = None, limit: Limit = 50) -> Pager:
    return Pager(before, limit, request=request, response=response)


Paging = Annotated[Pager, Depends(_pager)]


class NamedPage(BaseModel, Generic[Item]):
    items: list[Item]
    next: str | None = Field(description="pass it as `after` for the next page; null at the end")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePager(NameWindow):
    """Which page of a list by name a request asked for."""

    request: Request
    response: Response

    def cut(self, rows: Sequence[Row], name: str = "name") -> Listing[Row]:
        page = NameWindow.cut(self, rows, name)
        if page.next is not None:
            link_next(self.request, self.response, "after", page.next, self.limit)
        return page


async def _name_pager(
    request: Request, response: Response, after: TextFilter = None, limit: Limit = 50
) -> NamePager:
    return NamePager(after or "", limit, request=request, response=response)


NamePaging = Annotated[NamePager, Depends(_name_pager)]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPager(OrderWindow):
    """Which page of a list in its own order a request asked for."""

    request: Request
    response: Response

    def cut(self, rows: Sequence[Row], number: str = "id") -> Listing[Row]:
        page = OrderWindow.cut(self, rows, number)
        if page.next is not None:
            link_next(self.request, self.response, "after", page.next, self.limit)
        return page


def order_paging(usual: int) -> Any:
    """The page of a list in its own order, of so many unless another number is given."""

    async def pager(
        request: Request, response: Response, after: After = -1, limit: Limit = usual
    ) -> OrderPager:
        return OrderPager(after, limit, request=request, response=response)

    return Annotated[OrderPager, Depends(pager)]
