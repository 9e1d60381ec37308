"""Lists a page at a time, newest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Query, Request, Response
from pydantic import AfterValidator, BaseModel, Field

from ratchet.server.fields import MAX_ID

MAX_LIMIT = 500
Row = TypeVar("Row")
Item = TypeVar("Item")

Limit = Annotated[
    int,
    AfterValidator(lambda limit: max(1, min(limit, MAX_LIMIT))),
    Query(description=f"how many at most; taken as 1 to {MAX_LIMIT}"),
]
Before = Annotated[int | None, Query(ge=1, le=MAX_ID, description="go on where `next` of a page said")]


class Page(BaseModel, Generic[Item]):
    items: list[Item]
    next: int | None = Field(description="pass it as `before` for the next page; null at the end")


@dataclass(frozen=True, slots=True)
class Cut(Generic[Row]):
    """A page of rows, before they are put into words."""

    items: Sequence[Row]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class Pager:
    """Which page was asked for. Read `one_more` rows: the last one tells whether there is a next page."""

    before: int | None
    limit: int
    _request: Request
    _response: Response

    @property
    def one_more(self) -> int:
        return self.limit + 1

    def cut(self, rows: Sequence[Row], *, number: str = "id", cursor: str = "before") -> Cut[Row]:
        """The page in `rows`, with a `Link` to the next one. `number` is the attribute or key that pages go by."""
        if len(rows) <= self.limit:
            return Cut(rows)
        items = rows[: self.limit]
        last = items[-1]
        following: int = last[number] if isinstance(last, Mapping) else getattr(last, number)
        link_next(self._request, self._response, cursor, following, self.limit)
        return Cut(items, following)

    def without(self, rows: Sequence[Row], hidden: Callable[[Row], bool], **how: str) -> Cut[Row]:
        """The page without what the caller may not see: it may be short, or empty, and still have a next one."""
        page = self.cut(rows, **how)
        return Cut([row for row in page.items if not hidden(row)], page.next)


def link_next(request: Request, response: Response, cursor: str, following: int | str, limit: int) -> None:
    """Tell in the headers where the next page is."""
    url = request.url.include_query_params(**{cursor: following, "limit": limit})
    response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
    response.headers[f"X-Next-{cursor.capitalize()}"] = str(following)


async def _pager(request: Request, response: Response, before: Before = None, limit: Limit = 50) -> Pager:
    return Pager(before, limit, request, response)


Paging = Annotated[Pager, Depends(_pager)]
