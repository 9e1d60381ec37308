"""The launcher: enters the namespaces, starts the first process in them, and waits for its end."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any, NoReturn

from . import cgroup, names, namespaces, view
from .init import FORWARDED, STOP, attend
from .linux import PR_SET_PDEATHSIG, drop_capabilities, forgo_capabilities, prctl
from .spec import CommandSpec
from .tree import Piece

# A signal is lost if one of its kind waits already, so it is sent until the first process has heard it.
_AGAIN_MS, _TIMES = 50, 10
_REFUSED = 125
_TO_TELL = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def launch(
    spec: CommandSpec,
    line: int | None = None,
    delegation: cgroup.Delegation | None = None,
    begun: int | None = None,
) -> dict[str, Any] | None:
    """Run `spec` with stdin, stdout and stderr of this process, which lets go of them.

    Anything that comes over `line`, its end included, stops the command. It gets a cgroup of its own if there is a
    `delegation`. What it runs under is told to the file `begun`, and in the report of the first process, which this
    returns, or `None` if that was killed.
    """
    life, ours = os.pipe()
    hear, report = os.pipe()
    group = _group(spec, delegation)
    try:
        spec, pieces = _as_own_user(spec)
        namespaces.enter(spec.layers)
        if names.CAPABILITIES in spec.layers:
            forgo_capabilities()
    except OSError as error:
        if group is not None:
            group.remove()
        return {"refused": error.strerror}
    first = os.fork()
    if first == 0:
        os.close(ours)
        attend(spec, pieces, report, life, group, begun)
    os.close(life)
    os.close(report)
    for piece in pieces or ():
        os.close(piece.tree)
    for number in FORWARDED:
        signal.signal(number, lambda caught, _frame: os.kill(first, caught))
    _let_go(spec)
    said = _listen(first, hear, line)
    os.waitpid(first, 0)
    if group is not None:
        group.remove()
    return json.loads(said) if said else None


def _group(spec: CommandSpec, delegation: cgroup.Delegation | None) -> cgroup.RunGroup | None:
    """The cgroup of this run, while its own user can still make one. Without it the tree is looked at all the same."""
    if delegation is None:
        return None
    try:
        return cgroup.RunGroup(delegation, spec)
    except OSError:
        return None


def _as_own_user(spec: CommandSpec) -> tuple[CommandSpec, list[Piece] | None]:
    """Become the sandbox's own user if there is to be one, with what is to be seen cloned while root still can. A file
    system that cannot be mounted for that user leaves it to root."""
    if names.OWN_USER not in spec.layers:
        return spec, None
    number = namespaces.own_number()
    try:
        users = namespaces.user_mapping(number)
        pieces = view.pieces_of(spec.view, users)
    except OSError:
        return spec._replace(layers=[each for each in spec.layers if each != names.OWN_USER]), None
    os.close(users)
    if names.NETWORK in spec.layers:
        # Needed for it, and Python itself may lie where the other user cannot read.
        import socket  # noqa: F401
    namespaces.become_user(number, (0, 1, 2))
    return spec, pieces


def _let_go(spec: CommandSpec) -> None:
    """Hold neither the command's input and output, nor a directory, nor any right."""
    nowhere = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)
    os.chdir("/")
    if names.CAPABILITIES in spec.layers:
        drop_capabilities()


def _listen(first: int, hear: int, line: int | None) -> bytes:
    """The report of the first process, which is asked to stop when the line says so, and soon made to."""
    poll = select.poll()
    poll.register(hear, select.POLLIN)
    if line is not None:
        poll.register(line, select.POLLIN)
    patience, left = None, _TIMES
    while True:
        ready = [descriptor for descriptor, _ in poll.poll(patience)]
        if hear in ready:
            with os.fdopen(hear, "rb") as file:
                return file.read()
        if line is not None and line in ready:
            poll.unregister(line)
            os.kill(first, STOP)
            patience = _AGAIN_MS
        elif not ready:
            left -= 1
            os.kill(first, STOP if left else signal.SIGKILL)
            patience = _AGAIN_MS if left else None


def main() -> NoReturn:
    """Started as a program, with a description, a file to tell what it runs under, and an argv. Ends as the command
    ended, with 125 if it was refused."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    spec = CommandSpec.from_json(sys.argv[2])
    given = {name: os.environ[name] for name in spec.variables if name in os.environ}
    errors = os.dup(2)
    begun = os.open(sys.argv[3], _TO_TELL, 0o600) if sys.argv[3] else None
    whole = spec._replace(argv=sys.argv[4:], environment=given)
    told = launch(whole, delegation=cgroup.prepare(), begun=begun)
    if told is None or "refused" in told:
        reason = told["refused"] if told else "its first process was killed"
        os.write(errors, f"ratchet sandbox: {reason}\n".encode(errors="replace"))
        os._exit(_REFUSED)
    if told["stopped"]:
        os.write(errors, f"ratchet sandbox: stopped, for {told['stopped']}\n".encode())
        _end_by(signal.SIGKILL)
    code = os.waitstatus_to_exitcode(told["status"])
    if code < 0:
        _end_by(-code)
    os._exit(code)


def _end_by(number: int) -> NoReturn:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)
