"""Lists a page at a time, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
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
        """The page in `rows`, with a `Link` to the next one. `number` is the attribute that pages go by."""
        if len(rows) <= self.limit:
            return Cut(rows)
        items = rows[: self.limit]
        following: int = attrgetter(number)(items[-1])
        url = self._request.url.include_query_params(**{cursor: following, "limit": self.limit})
        self._response.headers["Link"] = f'<{url.path}?{url.query}>; rel="next"'
        self._response.headers[f"X-Next-{cursor.capitalize()}"] = str(following)
        return Cut(items, following)


async def _pager(request: Request, response: Response, before: Before = None, limit: Limit = 50) -> Pager:
    return Pager(before, limit, request, response)


Paging = Annotated[Pager, Depends(_pager)]
