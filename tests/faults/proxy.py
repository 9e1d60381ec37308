"""A bad network between a worker and PostgreSQL: a socket that passes pieces on, until the plan says otherwise."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.plan import Cut

NAME = ".s.PGSQL.5432"
FREEZE_SECONDS = 1.5
_PIECE = 65536


class Proxy:
    """Listens in `directory` for what lies in `behind`. Pieces are counted over all connections, in both directions."""

    def __init__(self, directory: Path, behind: Path, cuts: Sequence[Cut]) -> None:
        self._behind = str(behind / NAME)
        self._cuts = sorted(cuts, key=lambda cut: cut.nth)
        self._pieces = 0
        self._waiting: list[Cut] = []
        self._selector = selectors.DefaultSelector()
        self._twin: dict[socket.socket, socket.socket] = {}
        self._clients: set[socket.socket] = set()
        self._mute: set[socket.socket] = set()
        """Of these, what the server answers goes nowhere, and the connection ends with it."""
        self._said: dict[socket.socket, bytearray] = {}
        """What each has said in its transaction."""
        self._fired = directory / "fired"
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(directory / NAME))
        self._door.listen(64)
        self._selector.register(self._door, selectors.EVENT_READ)

    def serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._door:
                    self._connect()
                elif key.fileobj in self._twin:
                    assert isinstance(key.fileobj, socket.socket)
                    self._pass_on(key.fileobj)

    def _connect(self) -> None:
        client, _ = self._door.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._behind)
        self._twin |= {client: server, server: client}
        self._clients.add(client)
        for each in (client, server):
            self._selector.register(each, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        try:
            piece = source.recv(_PIECE)
        except OSError:
            piece = b""
        if not piece or source in self._mute:
            self._end(source)
            return
        self._pieces += 1
        while self._cuts and self._cuts[0].nth <= self._pieces:
            self._waiting.append(self._cuts.pop(0))
        action = self._action(source, piece)
        if action == "drop":
            self._end(source)
            return
        if action == "freeze":
            time.sleep(FREEZE_SECONDS)
        elif action is not None:
            self._mute.add(self._twin[source])
        try:
            self._twin[source].sendall(piece)
        except OSError:
            self._end(source)

    def _action(self, source: socket.socket, piece: bytes) -> str | None:
        """What is to happen to this piece: a cut waits for one that it fits."""
        asks, commits = source in self._clients, b"COMMIT" in piece
        said = self._said.setdefault(source, bytearray())
        said += piece
        found = None
        for cut in self._waiting:
            fits = {"drop the answer of": asks, "swallow the commit of": asks and commits}.get(
                cut.action, True
            )
            if fits and cut.text.encode() in said:
                self._waiting.remove(cut)
                with self._fired.open("a") as out:
                    out.write(f"{cut}\n")
                found = cut.action
                break
        if commits:
            said.clear()
        return found

    def _end(self, one: socket.socket) -> None:
        for each in (one, self._twin.get(one)):
            if each is not None:
                self._twin.pop(each, None)
                self._clients.discard(each)
                self._mute.discard(each)
                self._said.pop(each, None)
                with contextlib.suppress(KeyError):
                    self._selector.unregister(each)
                each.close()
