"""A signal ends the wait, however it comes."""

from __future__ import annotations

import subprocess
import sys

_UNINTERRUPTED = """
import os, signal, threading
from ratchet.runtime.signals import StopSignals

told = StopSignals().__enter__()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
told.wait()
print("noticed")
"""


def test_a_signal_that_does_not_interrupt_the_wait_is_noticed() -> None:
    """One that comes just before the wait does not. Here another thread receives it, which amounts to the same."""
    done = subprocess.run([sys.executable, "-c", _UNINTERRUPTED], capture_output=True, text=True, timeout=120)
    assert done.stdout == "noticed\n", done.stderr
