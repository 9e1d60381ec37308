"""The last steps of a command: from a fork of ours to the program that was asked for."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from .rights import give_up_for_command
from .spec import Spec

_NOT_RUN = 127


def become(spec: Spec, trouble: int) -> NoReturn:
    """Give up every right, then run the program. What stops it goes to `trouble`, which running the program closes."""
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        # Python ignores some, and so does whoever was started with nohup: a program would inherit that.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.umask(0o022)
        trouble = os.dup2(trouble, 3, inheritable=False)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        give_up_for_command(spec)
        os.execvpe(spec.argv[0], spec.argv, spec.environment or {})
    except OSError as error:
        os.write(trouble, f"{spec.argv[0]} cannot be run: {error.strerror}".encode(errors="replace"))
    finally:
        os._exit(_NOT_RUN)
