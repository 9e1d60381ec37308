"""The model of a peer: answers every chat completion at once with the next number, and notes when it was asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.peers.toy import edit
from ratchet.modelserver import ModelServer, Turn, say

_NAME = "peer"


class Model:
    def __init__(self, url: str) -> None:
        self.url = url
        self.calls: list[float] = []

    def answer(self, body: dict[str, Any]) -> Turn:
        """The server asks for one answer at a time, so nothing here can be interrupted by another call."""
        self.calls.append(time.monotonic())
        return say(edit(body["messages"][-1]["content"], len(self.calls)))


@contextmanager
def open_model() -> Iterator[Model]:
    with ModelServer() as server:
        model = Model(server.openai_url(_NAME))
        server.script(_NAME, model.answer)
        yield model
