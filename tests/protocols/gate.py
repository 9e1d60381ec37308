"""Places at which the processes around a worker come by, and at one of which the worker dies.

They are real ends of real programs: an agent, a git that moves a ref, a remote that was pushed to, a forge that has
opened a pull request. Each says where it is and waits for an answer, so that the worker is certainly there when it is
killed.
"""

from __future__ import annotations

import os
import signal
import socketserver
import sys
import threading
from pathlib import Path

# For programs that are written into a file or a setting. It ends badly if the worker was killed.
COME_BY = """\
import socket
def come_by(place):
    with socket.create_connection(("127.0.0.1", {port})) as line:
        line.sendall(place.encode() + b"\\n")
        if line.recv(1) != b"+":
            raise SystemExit("the worker is gone")
"""
# Git, but for a moment before and after a branch of a protocol is moved, and before a checkout is shown.
_GIT = """\
#!/bin/sh
case " $* " in
*" update-ref --stdin "*) exec {python} -I -S {mover} "$@" ;;
*" checkout "*) {python} -I -S {shower} || exit 1 ;;
esac
exec {git} "$@"
"""
_MOVER = """\
import re, subprocess, sys
{come_by}
git = subprocess.Popen([{git!r}, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
branch = None
for line in sys.stdin.buffer:
    moved = re.match(rb"update refs/heads/(\\S+) ", line)
    branch = moved[1].decode() if moved else branch
    mortal = line == b"commit\\n" and branch is not None
    if mortal:
        come_by("ref is to be moved")
    git.stdin.write(line)
    git.stdin.flush()
    if line.split()[0] in (b"start", b"prepare", b"commit", b"abort"):
        said = git.stdout.readline()
        if not said:
            sys.exit(git.wait())
        if mortal:
            come_by("ref was moved")
            branch = None
        sys.stdout.buffer.write(said)
        sys.stdout.buffer.flush()
git.stdin.close()
sys.exit(git.wait())
"""


class Gate:
    """Remembers who came by, and kills `worker` when somebody comes by the deadly place for the nth time."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.worker = 0
        self._deadly: tuple[str, int] | None = None
        # One comes by at a time, so that the nth is the nth.
        self._lock = threading.Lock()
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                place = self.rfile.readline().decode().strip()
                self.wfile.write(b"+" if outer.come_by(place) else b"-")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def come_by_source(self) -> str:
        return COME_BY.format(port=self._server.server_address[1])

    def forget(self) -> None:
        self.passed.clear()

    def die_at(self, place: str, nth: int) -> None:
        self._deadly = (place, nth)

    @property
    def has_killed(self) -> bool:
        return self._deadly is None

    def come_by(self, place: str) -> bool:
        """Whether the worker lives still."""
        with self._lock:
            self.passed.append(place)
            if self._deadly != (place, self.passed.count(place)):
                return True
            os.kill(self.worker, signal.SIGKILL)
            self._deadly = None
            return False

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def write_git(directory: Path, gate: Gate, git: str) -> None:
    """A `git` that comes by the gate, in a directory for the PATH."""
    mover, shower, program = directory / "mover.py", directory / "shower.py", directory / "git"
    mover.write_text(_MOVER.format(come_by=gate.come_by_source, git=git))
    shower.write_text(gate.come_by_source + 'come_by("step was settled")\n')
    program.write_text(_GIT.format(python=sys.executable, mover=mover, shower=shower, git=git))
    program.chmod(0o755)
