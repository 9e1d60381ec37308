"""Recipes that take more than they may, or end in a strange way."""

from __future__ import annotations

from ratchet.kernel import TrialStatus
from ratchet.research.checking.hostile.attack import CRASH, OVERRUN, REFUSED, Attack, Where

_MARK = """
import ctypes

try:
    # PR_SET_NAME: forks keep the name, so that they are known from outside.
    ctypes.CDLL(None).prctl(15, FACTS["nonce"].encode(), 0, 0, 0)
except (OSError, AttributeError):
    pass
"""
_GRANDCHILDREN = f"""{_MARK}
import signal, subprocess, time

def stay():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, 256)
    while True:
        time.sleep(1)

try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay()
        os._exit(0)
    waits = [sys.executable, "-c", "import time; time.sleep(3600)", FACTS["nonce"]]
    subprocess.Popen(
        waits, start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
except OSError:
    pass
"""
_FORK_BOMB = f"""{_MARK}
while True:
    try:
        os.fork()
    except BlockingIOError:
        continue
"""
_MEMORY = """
held = []
while True:
    held.append(bytearray(b"x") * (16 << 20))
"""
_OUTPUT = """
while True:
    os.write(1, b"x" * 65536)
    os.write(2, b"x" * 65536)
"""
_FILES = """
for top in out_directories():
    for number in range(1000):
        with open(os.path.join(top, "flood-%d" % number), "w") as file:
            file.write("x")
    for number in range(4):
        with open(os.path.join(top, "large-%d" % number), "wb") as file:
            file.write(b"x" * (8 << 20))
"""
_LARGE_FILE = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for top in out_directories():
    with open(os.path.join(top, "sparse"), "wb") as file:
        file.truncate(1 << 44)
"""
_NESTED = """
for top in out_directories():
    os.chdir(top)
    for _ in range(400):
        os.mkdir("nested")
        os.chdir("nested")
    os.chmod(".", 0)
leave()
"""
_HANG = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(3600)
"""
_STOPS_ITSELF = """
import signal
os.kill(os.getpid(), signal.SIGSTOP)
"""
_SLEEPS_AT_EXIT = """
import atexit, time
atexit.register(time.sleep, 3600)
"""

EXHAUSTS = (
    Attack(name="leaves grandchildren behind", code=_GRANDCHILDREN),
    Attack(name="forks without end", code=_FORK_BOMB),
    Attack(name="takes all memory", code=_MEMORY),
    Attack(name="prints without end", code=_OUTPUT, ends=CRASH, scores=False),
    Attack(name="leaves a thousand files", code=_FILES, where=Where.COMMAND),
    Attack(name="writes a file beyond its limit", code=_LARGE_FILE, where=Where.COMMAND),
    Attack(name="nests directories without end", code=_NESTED, where=Where.COMMAND),
    Attack(name="hangs", code=_HANG, ends=OVERRUN, scores=False),
    Attack(name="computes without end", code="while True:\n    pass\n", ends=OVERRUN, scores=False),
    Attack(name="stops itself", code=_STOPS_ITSELF),
    Attack(name="sleeps when it ends", code=_SLEEPS_AT_EXIT),
)
ENDS = (
    Attack(name="raises", code="raise ValueError('hostile')\n"),
    Attack(name="raises with a very long message", code="raise ValueError('x' * 300_000)\n"),
    Attack(name="raises what no program catches", code="raise KeyboardInterrupt\n"),
    Attack(name="recurses until it crashes", code="import ctypes\nctypes.string_at(0)\n"),
    Attack(name="exits with 0 and no answer", code="os._exit(0)\n"),
    Attack(name="exits with 3", code="leave()\n"),
    # A shell says by this code that a program is missing, which is nobody's idea: it is tried again.
    Attack(name="exits with 127", code="os._exit(127)\n", ends=REFUSED | {TrialStatus.INFRA_ERROR}),
    Attack(name="kills itself", code="os.kill(os.getpid(), 9)\n"),
    Attack(name="aborts", code="os.abort()\n"),
    Attack(name="closes all its descriptors", code="os.closerange(0, 256)\n"),
)
