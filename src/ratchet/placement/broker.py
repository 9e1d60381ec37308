"""Placing work on the nodes of a cluster, which a process of our own, the broker, is connected to.

A library of a cluster brings threads, signal handlers and the right to end its process when the cluster is gone. In a
broker it has them for itself: when that dies, attempts are lost and placed again, and nothing else happens.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.util
import itertools
import math
import pickle
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import IO, TYPE_CHECKING, Any, cast

import ratchet
from ratchet.extras import missing
from ratchet.kernel import Missing, RatchetError, decoded, last_line
from ratchet.observe.logs import logger
from ratchet.placement.frames import NodeRow, Placed, receive, send
from ratchet.placement.node import Assignment, NodeReply
from ratchet.placement.work import (
    LOCAL,
    ClusterAway,
    NodeNeeds,
    NodeRefused,
    PlacedWork,
    Placement,
    T,
    Ticket,
    WorkDone,
    WorkFailed,
    WorkLost,
    WorkNews,
)
from ratchet.programs import PIPE, start_program

if TYPE_CHECKING:
    from ratchet.config import Settings

_log = logger(__name__)
_MOST_CONTENTS = 256
_MOST_CONTENT_BYTES = 512 * 1024 * 1024
_UNFIT_SECONDS = 300.0
_END_SECONDS = 5.0
_NODES_SECONDS = 10.0


def placement_for(settings: Settings, kind: str = "") -> Placement:
    """The placement of `kind`, or the one that the settings name, shared by all of this process.

    Where a cluster is, only the settings say. Raises `Missing` without the extra of the kind.
    """
    if not kind and not settings.sets("placement"):
        return LOCAL
    placement = settings.placement
    match kind or placement.kind:
        case "ray":
            if importlib.util.find_spec("ray") is None:
                raise missing("ray", "placing work on Ray")
            return _brokered(("ratchet.placement.ray_tasks", placement.address), placement.cache)
        case "processes":
            return _brokered(("ratchet.placement.processes", str(placement.nodes)), placement.cache)
    return LOCAL


@cache
def _brokered(module: tuple[str, ...], cache_directory: str) -> Brokered:
    brokered = Brokered([sys.executable, "-P", "-m", *module], cache_directory)
    atexit.register(brokered.close)
    return brokered


@dataclass(slots=True)
class _Attempt:
    name: str
    kind: str
    loop: asyncio.AbstractEventLoop
    heard: asyncio.Queue[tuple[bytes | NodeReply, str]]


class _Link:
    """One broker while it lives, and what it was given."""

    def __init__(self, command: Sequence[str]) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the link
        # Interrupting this process is no reason to end it: work that drains still needs it. It ends with our pipe.
        self.process = start_program(command, input=PIPE, complaints=self._said)
        self.contents: OrderedDict[str, int] = OrderedDict()

    def send(self, *frame: Any) -> None:
        """Raises `WorkLost` when it is gone."""
        try:
            send(cast(IO[bytes], self.process.stdin), *frame)
        except (OSError, ValueError):
            raise WorkLost(f"the connection to the cluster ended: {self.last_words()}") from None

    def let_go(self) -> None:
        """Close what is left of one that has ended."""
        for pipe in (self.process.stdin, self.process.stdout, self._said):
            with contextlib.suppress(OSError):
                cast(IO[bytes], pipe).close()

    def last_words(self) -> str:
        self._said.seek(0)
        return last_line(decoded(self._said.read()[-16_384:]))[:500] or "its broker was killed"

    def listen(self, listener: Callable[[_Link], None]) -> None:
        self._listener = threading.Thread(target=listener, args=(self,), daemon=True)
        self._listener.start()

    def close(self) -> None:
        """End it. What it has begun to say is still heard."""
        with contextlib.suppress(OSError):
            cast(IO[bytes], self.process.stdin).close()
        self._listener.join(_END_SECONDS)


class Brokered:
    """See `Placement`. Used from any thread and any event loop. The broker is started by the first work."""

    def __init__(self, command: Sequence[str], cache_directory: str) -> None:
        self._command = tuple(command)
        self._cache = cache_directory
        # Frames of two threads must not mix, nor two brokers be started.
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._was_reached = False
        self._numbers = itertools.count(1)
        self._attempts: dict[int, _Attempt] = {}
        self._unfit: dict[str, dict[str, tuple[str, float]]] = {}

    async def place(self, work: PlacedWork[T]) -> Ticket[T]:
        ticket = Ticket(work, next(self._numbers))
        attempt = _Attempt(work.name, "", asyncio.get_running_loop(), asyncio.Queue())
        # One hop to a thread for all of it: each costs as much as sending.
        sending = asyncio.ensure_future(asyncio.to_thread(self._send_order, ticket.number, work, attempt))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            # What is being sent is cancelled once it is sent: otherwise it would run for no attempt.
            sending.add_done_callback(partial(self._withdraw_sent, ticket.number))
            raise
        except BaseException:
            self._attempts.pop(ticket.number, None)
            raise
        return ticket

    async def watch(self, ticket: Ticket[T]) -> AsyncIterator[WorkNews | WorkDone[T]]:
        attempt = self._attempts[ticket.number]
        while True:
            piece, node = await attempt.heard.get()
            if isinstance(piece, NodeReply):
                # There is nothing left to be cancelled.
                self._attempts.pop(ticket.number, None)
                yield WorkDone(self._value(attempt, piece, node))
                return
            yield WorkNews(piece)

    async def cancel(self, ticket: Ticket[T]) -> None:
        self._withdraw(ticket.number)

    def _withdraw_sent(self, number: int, sent: asyncio.Future[None]) -> None:
        if not sent.cancelled() and sent.exception() is None:
            self._withdraw(number)

    def _withdraw(self, number: int) -> None:
        # From here on what arrives of it is for no attempt.
        if self._attempts.pop(number, None) is None:
            return
        with self._lock, contextlib.suppress(WorkLost):
            if self._link is not None:
                self._link.send("cancel", number)

    @property
    def is_linked(self) -> bool:
        """Whether its broker runs."""
        return self._link is not None

    async def nodes(self) -> list[NodeRow]:
        """The nodes that live. Raises `WorkLost` when the cluster cannot be reached."""
        number = next(self._numbers)
        attempt = _Attempt("nodes", "", asyncio.get_running_loop(), asyncio.Queue())
        self._attempts[number] = attempt
        try:
            await asyncio.to_thread(self._send, "nodes", number)
            piece, node = await attempt.heard.get()
            assert isinstance(piece, NodeReply)
            found: list[NodeRow] = self._value(attempt, piece, node)
            return found
        finally:
            self._attempts.pop(number, None)

    def close(self) -> None:
        """End the broker, and with it all that it has placed."""
        with self._lock:
            link, self._link = self._link, None
        if link is not None:
            link.close()

    def _value(self, attempt: _Attempt, reply: NodeReply, node: str) -> Any:
        match reply.outcome:
            case "done":
                return pickle.loads(reply.value)
            case "failed":
                raise WorkFailed(f"{attempt.name}: {reply.reason}", hint=reply.hint)
            case "none":
                raise Missing(
                    f"no node of the cluster can do {attempt.name}: {reply.reason}",
                    hint="install this Ratchet on the nodes and see `ratchet doctor --fleet`",
                )
            case "unfit":
                self._unfit.setdefault(attempt.kind, {})[node] = (reply.reason, time.monotonic())
                _log.warning("a node was refused", node=node, reason=reply.reason)
                raise NodeRefused(reply.reason)
            case "away":
                raise ClusterAway(f"{attempt.name} was lost: {reply.reason}")
        raise WorkLost(f"{attempt.name} was lost: {reply.reason}")

    def _send_order(self, number: int, work: PlacedWork[Any], attempt: _Attempt) -> None:
        order = work.there()
        attempt.kind = order.kind
        self._attempts[number] = attempt
        assignment = Assignment(
            work.name,
            order.function,
            pickle.dumps(order.given),
            tuple(order.contents),
            work.needs,
            self._cache,
            work.hear is not None,
        )
        # After a while it is asked again: it may have been given what it lacked.
        oldest = time.monotonic() - _UNFIT_SECONDS
        refused = self._unfit.get(order.kind, {}).items()
        unfit = {node: reason for node, (reason, at) in refused if at > oldest}
        placed = Placed(
            pickle.dumps(assignment),
            work.name,
            work.needs,
            tuple(order.contents),
            ratchet.__version__,
            unfit,
            work.hear is not None,
        )
        with self._lock:
            link = self._linked()
            self._give(link, order.contents)
            link.send("place", number, placed)

    def _give(self, link: _Link, contents: Mapping[str, bytes]) -> None:
        for sha256, content in contents.items():
            if sha256 not in link.contents:
                link.send("content", sha256, content)
            link.contents[sha256] = len(content)
            link.contents.move_to_end(sha256)
        while len(link.contents) > len(contents) and (
            len(link.contents) > _MOST_CONTENTS or sum(link.contents.values()) > _MOST_CONTENT_BYTES
        ):
            oldest, _ = link.contents.popitem(last=False)
            link.send("drop", oldest)

    def _send(self, *frame: Any) -> None:
        with self._lock:
            self._linked().send(*frame)

    def _linked(self) -> _Link:
        if self._link is None:
            try:
                self._link = _Link(self._command)
            except OSError as error:
                raise RatchetError(f"the broker of the cluster cannot be started: {error}") from error
            self._link.listen(self._listen)
        return self._link

    def _listen(self, link: _Link) -> None:
        while (frame := receive(cast(IO[bytes], link.process.stdout))) is not None:
            self._was_reached = True
            number, piece, node = frame
            self._hand_over(number, piece, node)
        link.process.wait()
        outcome = "away" if self._was_reached else "lost"
        reply = NodeReply(outcome, reason=f"the connection to the cluster ended: {link.last_words()}")
        link.let_go()
        with self._lock:
            if self._link is link:
                self._link = None
            # One that is about to go to the next broker is among them; losing it costs a pause.
            lost = list(self._attempts)
        for number in lost:
            self._hand_over(number, reply, "")

    def _hand_over(self, number: int, piece: bytes | NodeReply, node: str) -> None:
        attempt = self._attempts.get(number)
        if attempt is not None:
            with contextlib.suppress(RuntimeError):  # its loop was closed: nobody waits any more
                attempt.loop.call_soon_threadsafe(attempt.heard.put_nowait, (piece, node))


def nodes_in_use(settings: Settings) -> tuple[dict[str, Any], ...]:
    """The nodes of the cluster on which this process places work, as rows of its report. None before it has placed any,
    and none while the cluster cannot be reached: that is what its work says."""
    placement = placement_for(settings)
    if not isinstance(placement, Brokered) or not placement.is_linked:
        return ()
    try:
        found = asyncio.run(asyncio.wait_for(placement.nodes(), _NODES_SECONDS))
    except (WorkLost, TimeoutError):
        return ()
    return tuple(map(_reported, found))


def _reported(node: NodeRow) -> dict[str, Any]:
    cards = int(node.resources.get("GPU", 0))
    types = [name.partition(":")[2] for name in node.resources if name.startswith("accelerator_type:")]
    memory = node.resources.get("memory", 0.0)
    return {
        "id": node.id,
        "name": node.name,
        "cpus": node.resources.get("CPU", 0.0),
        # Ray leaves out what is used up.
        "cpus_used": node.resources.get("CPU", 0.0) - node.free.get("CPU", 0.0),
        "gpus": [types[0] if types else "GPU"] * cards,
        "memory_bytes": int(memory) if math.isfinite(memory) else None,
    }


def pinned_to(node: NodeRow) -> NodeNeeds:
    """What only this node has, for work that asks how it is."""
    return NodeNeeds(cpus=0.0, labels={"ray.io/node-id": node.id}, wall_seconds=30.0)
