"""Lists a page at a time, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Query, Request, Response
from pydantic import AfterValidator, BaseModel, Field

from ratchet.operations import Listing, Window
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
