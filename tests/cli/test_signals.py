from __future__ import annotations

import subprocess
import sys

_UNINTERRUPTED = """
import os, signal, threading
from ratchet.cli.signals import StopSignal

told = StopSignal()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
told.wait()
print("noticed")
"""


def test_a_signal_that_does_not_interrupt_the_wait_is_noticed() -> None:
    """As one does not that comes just before the wait begins. Here another thread receives it, which comes to the same."""
    done = subprocess.run([sys.executable, "-c", _UNINTERRUPTED], capture_output=True, text=True, timeout=20)
    assert done.stdout == "noticed\n", done.stderr
