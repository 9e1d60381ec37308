"""`ratchet serve`: one process answers, another one works, and this one keeps both running.

Both are forked from here and share nothing but the ledger and the listening socket. Whatever is known to be wrong is
raised before that, once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ratchet.config import Loaded
from ratchet.config.load import ports_to_try
from ratchet.observe.logs import logger
from ratchet.runtime import open_ledger, work
from ratchet.runtime.resources import allow_descriptors
from ratchet.sandbox.inside.linux import PR_SET_PDEATHSIG, prctl
from ratchet.server.address import find_token, listen

if TYPE_CHECKING:
    from ratchet.runtime import Kinds

_log = logger(__name__)
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_HEARD = (*_STOPPING, signal.SIGCHLD)
# A child that dies starts again after this long, twice as long after each death that follows soon.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 30.0
_SOON_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Serving:
    """Where the API and the agents answer, and the file with its token; no file when the token was configured.

    `link` lets a person into the console, and is as secret as the token.
    """

    url: str
    agents_url: str | None
    token_path: Path | None
    process_id: str
    link: str = field(repr=False)


def serve(
    loaded: Loaded,
    *,
    host: str | None = None,
    port: int | None = None,
    ready: Callable[[Serving], None] | None = None,
    kinds: Kinds | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, then drain: finish jobs and requests, end streams. Returns the exit code.

    `host` and `port` default to the settings. `ready` is called once requests are answered and jobs are done. Call it
    in the main thread of a process without others: it returns in the two children as well, when they end.
    A port that nobody asked for and that is taken gives way to a free one, also that of the agents; with a `port`, that
    of the agents does so even if it is configured, as it is for a server beside another. Raises
    `ConfigError` rather than listen where strangers could come in without a token that somebody chose, and `Conflict`
    for a port that was asked for and is taken.
    """
    token = find_token(loaded)
    ports = ports_to_try(loaded, "server.port") if port is None else (port,)
    address = host or loaded.settings.server.host
    with _held(*_HEARD), listen(address, *ports, token_configured=token.configured) as bound:
        allow_descriptors()
        # Used by all three, and here perhaps for the first time when no file can be opened any more.
        import structlog  # noqa: F401

        # Made or upgraded here, while no child uses it.
        open_ledger(loaded).close()

        def do_jobs(life: Life) -> int:
            bound.close()
            work(loaded, kinds, signals=(signal.SIGTERM,), started=lambda: life.begun(0))
            return 0

        def take_requests(life: Life) -> int:
            # Loaded in this child only: it is most of what the server needs.
            from ratchet.server.serving import answer

            return answer(loaded, bound, token, life, any_port=port is not None, ready=ready, kinds=kinds)

        return _supervise(Child("worker", do_jobs), Child("HTTP server", take_requests))


@dataclass(frozen=True, slots=True)
class Life:
    """One start of a child: `begun` is to be called once it does its work, with a number for the lives that follow.

    `before` is that of the life before, and `beside` can be read once the child that was started first has begun.
    """

    number: int
    before: int | None
    beside: int
    begun: Callable[[int], None]


class Child:
    """A process that is started again, after a pause, when it ends. `code` is what it ended with last."""

    def __init__(self, name: str, main: Callable[[Life], int]) -> None:
        self.name = name
        self.main = main
        self.pid: int | None = None
        self.due: float | None = None
        self.code = 0
        self.signs = -1
        self._lives = 0
        self._deaths_soon = 0
        self._since = 0.0
        self._said: int | None = None

    @property
    def never_began(self) -> bool:
        return self._said is None

    def start(self, beside: int) -> Life | None:
        """Returns twice: here without a value, and in the child with its life. Here only, if it cannot be started."""
        self._lives += 1
        self._since, self.due = time.monotonic(), None
        supervisor = os.getpid()
        with contextlib.ExitStack() as opened:
            try:
                self.signs, writer = os.pipe()
                opened.callback(os.close, writer)
                opened.callback(os.close, self.signs)
                os.set_blocking(self.signs, False)
                self.pid = os.fork()
            except OSError as error:
                if self.never_began:
                    raise
                # The machine has no room for it. To end for that would end what the other one does.
                self._start_later(f"cannot be started again: {error.strerror}")
                return None
            opened.pop_all()
        if self.pid:
            os.close(writer)
            return None
        # What kills the supervisor ends everything, as if there were one process.
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)
        # Ctrl-C reaches all three, and the supervisor says who ends when. To ignore it would be inherited by programs.
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        return Life(self._lives, self._said, beside, lambda number: _say(writer, number))

    def signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)

    def reap(self) -> bool:
        """Whether it has ended since the last look."""
        if self.pid is None:
            return False
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return False
        with contextlib.suppress(BlockingIOError, ValueError):
            self._said = int(os.read(self.signs, 16))
        os.close(self.signs)
        self.pid, self.code = None, os.waitstatus_to_exitcode(status)
        return True

    def start_again(self) -> None:
        number = -self.code
        killer = next((each.name for each in signal.Signals if each == number), f"signal {number}")
        how = f"ended with exit code {self.code}" if number <= 0 else f"was killed by {killer}"
        self._start_later(f"{how} and starts again")

    def _start_later(self, why: str) -> None:
        """The later, the more often it has died of late."""
        lived = time.monotonic() - self._since
        self._deaths_soon = self._deaths_soon + 1 if lived < _SOON_SECONDS else 1
        pause = min(_PAUSE_SECONDS * 2 ** min(self._deaths_soon - 1, 10), _LONGEST_PAUSE_SECONDS)
        self.due = time.monotonic() + pause
        _log.warning(f"the {self.name} {why}", lived=round(lived, 1), pause=pause)


def _supervise(worker: Child, server: Child) -> int:
    """Keep both running until this process is to stop. Returns the exit code, also in each child when that ends."""
    children = (worker, server)
    stopping, code = False, 0
    worker.due = server.due = time.monotonic()
    while True:
        for child in children:
            if child.due is not None and child.due <= time.monotonic() and not stopping:
                life = child.start(worker.signs)
                if life is not None:
                    return child.main(life)
        heard = _wait(*(child.due for child in children if child.due is not None and not stopping))
        if heard in _STOPPING and stopping:
            os.write(sys.stderr.fileno(), b"told twice: ending at once\n")
            for child in children:
                child.signal(signal.SIGKILL)
            return 128 + heard
        ended = [child for child in children if child.reap()]
        failed = [child for child in ended if not stopping and child.never_began]
        code = next((child.code if child.code > 0 else 1 for child in failed), code)
        if not stopping and (failed or heard in _STOPPING):
            stopping = True
            worker.signal(signal.SIGTERM)
            # It becomes unready, and answers: those who watch a job can see it finish.
            server.signal(signal.SIGUSR1)
        elif not stopping:
            for child in ended:
                child.start_again()
        if stopping and worker.pid is None:
            server.signal(signal.SIGTERM)
            if server.pid is None:
                return code or max(0, worker.code, server.code)


def _wait(*until: float) -> int | None:
    """The next signal that arrives, or none when one of these moments has come."""
    if not until:
        return signal.sigwaitinfo(_HEARD).si_signo
    heard = signal.sigtimedwait(_HEARD, max(0.0, min(until) - time.monotonic()))
    return None if heard is None else heard.si_signo


@contextlib.contextmanager
def _held(*numbers: signal.Signals) -> Iterator[None]:
    """Let these signals wait until they are asked for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _say(writer: int, number: int) -> None:
    os.write(writer, str(number).encode())
    os.close(writer)
