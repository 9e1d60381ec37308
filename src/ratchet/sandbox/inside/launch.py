"""The launcher: enters the namespaces, starts the first process in them, and waits for its end."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any, NoReturn

from . import names, namespaces
from .init import FORWARDED, STOP, attend
from .linux import PR_SET_PDEATHSIG, drop_capabilities, forgo_capabilities, prctl
from .spec import CommandSpec

# A signal is lost if one of its kind waits already, so it is sent until the first process has heard it.
_AGAIN_MS, _TIMES = 50, 10
_REFUSED = 125


def launch(spec: CommandSpec, line: int | None = None) -> dict[str, Any] | None:
    """Run `spec` with stdin, stdout and stderr of this process, which lets go of them.

    Anything that comes over `line`, its end included, stops the command. Returns the report of the first process, or
    `None` if that was killed.
    """
    life, ours = os.pipe()
    hear, report = os.pipe()
    try:
        namespaces.enter(spec.layers)
        if names.CAPABILITIES in spec.layers:
            forgo_capabilities()
    except OSError as error:
        return {"refused": error.strerror}
    first = os.fork()
    if first == 0:
        os.close(ours)
        attend(spec, report, life)
    os.close(life)
    os.close(report)
    for number in FORWARDED:
        signal.signal(number, lambda caught, _frame: os.kill(first, caught))
    _let_go(spec)
    said = _listen(first, hear, line)
    os.waitpid(first, 0)
    return json.loads(said) if said else None


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
    """Started as a program, with a description and an argv. Ends as the command ended, with 125 if it was refused."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    spec = CommandSpec.from_json(sys.argv[2])
    given = {name: os.environ[name] for name in spec.variables if name in os.environ}
    errors = os.dup(2)
    told = launch(spec._replace(argv=sys.argv[3:], environment=given))
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
