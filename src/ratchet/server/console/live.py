"""Telling a page that it is out of date: one short line for any number of events, a few times a second at most."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from fastapi import APIRouter
from fastapi.sse import format_sse_event

from ratchet.server.routes.events import NO_STORE, EventStream, Start, Where, visible
from ratchet.server.service import Access, Api

router = APIRouter()
_PAUSE_SECONDS = 0.4


@router.get("/live", response_class=EventStream)
async def live(api: Api, where: Where, after: Start) -> EventStream:
    return EventStream(_changes(api, after, where), headers=NO_STORE)


async def _changes(api: Access, after: int, where: Where) -> AsyncIterator[bytes]:
    """`changed` with the number of the newest event, for every burst of them."""
    heard, newest, over = asyncio.Event(), after, False

    async def listen() -> None:
        nonlocal newest, over
        try:
            async with aclosing(visible(api, after, where)) as events:
                async for event in events:
                    newest = event.id
                    heard.set()
        finally:
            over = True
            heard.set()

    listening = asyncio.create_task(listen())
    try:
        while True:
            await heard.wait()
            heard.clear()
            if newest > after:
                after = newest
                yield format_sse_event(event="changed", id=str(newest), data_str=str(newest))
            if over:
                await listening
                return
            await asyncio.sleep(_PAUSE_SECONDS)
    finally:
        listening.cancel()
