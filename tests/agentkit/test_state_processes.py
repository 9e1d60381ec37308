"""Many processes on one state, some of which are killed."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from ratchet.agentkit import StateStore

ADDER = """
import sys
from pathlib import Path
from ratchet.agentkit import StateStore

store, name, times = StateStore(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
for _ in range(times):
    with store.edit(by=name) as state:
        state["count"] += 1
        state["each"][name] = state["each"].get(name, 0) + 1
"""

# Forks writers, kills each at some moment, and looks at what it left. A writer tells of an edit when it is done.
MURDERER = """
import os, random, signal, sys, time
from pathlib import Path
from ratchet.agentkit import StateStore

store, rounds = StateStore(Path(sys.argv[1])), int(sys.argv[2])

def write(pipe):
    while True:
        with store.edit(by="victim") as state:
            state["count"] += 1
            state["pad"][state["count"] % 50] = "x" * random.randrange(4000)
        os.write(pipe, state["count"].to_bytes(4, "big"))

def victim():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        write(writing)
    os.close(writing)
    done = os.read(reading, 4)
    time.sleep(random.random() / 50)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while chunk := os.read(reading, 4):
        done = chunk
    os.close(reading)
    return int.from_bytes(done, "big")

for _ in range(rounds):
    told = victim()
    count = store.read()["count"]
    assert count in (told, told + 1), (told, count)
    with store.edit(by="survivor") as state:
        assert state["count"] == count
        state["count"] += 1
    newest = store.history(limit=3)
    assert newest[0].by == "survivor" and not newest[0].recovered
    assert store.at(newest[1].number)["count"] == count
"""


def _started(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)])


@pytest.mark.soak
def test_eight_processes_lose_no_edit_and_a_reader_always_finds_a_whole_state(tmp_path: Path) -> None:
    (tmp_path / "state_schema.json").write_text('{"properties": {"count": {"type": "integer"}}}')
    store = StateStore(tmp_path)
    store.begin({"count": 0, "each": {}})
    writers = [_started(ADDER, tmp_path, f"writer {number}", 500) for number in range(8)]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        state = store.read()
        assert state["count"] == sum(state["each"].values()) >= seen
        seen = state["count"]
        # A look every few milliseconds leaves the processors to the writers.
        with contextlib.suppress(subprocess.TimeoutExpired):
            writers[-1].wait(0.005)
    assert [writer.returncode for writer in writers] == [0] * 8
    assert store.read() == {"count": 4000, "each": {f"writer {number}": 500 for number in range(8)}}
    assert [change.number for change in store.history(limit=5000)] == list(range(4001, 0, -1))
    assert [store.at(number)["count"] for number in range(1, 4002, 250)] == list(range(0, 4001, 250))


@pytest.mark.soak
def test_a_writer_killed_at_any_moment_leaves_a_whole_state_and_no_gap(tmp_path: Path) -> None:
    (tmp_path / "state_schema.json").write_text("{}")
    store = StateStore(tmp_path)
    store.begin({"count": 1, "pad": [""] * 50})
    assert _started(MURDERER, tmp_path, 100).wait() == 0
    changes = store.history(limit=100_000)
    assert [change.number for change in changes] == list(range(store.read()["count"], 0, -1))
    assert not any(change.recovered for change in changes)
    assert all(store.at(change.number)["count"] == change.number for change in changes[::50])


FULL = """
import resource, signal, sys
from pathlib import Path
from ratchet.agentkit import StateStore

store = StateStore(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    with store.edit() as state:
        state["pad"] = "y" * 300_000
except OSError:
    sys.exit(0)
sys.exit(1)
"""


@pytest.mark.parametrize("most", [1000, 40_000])
def test_a_disk_that_is_full_leaves_everything_as_it_was(tmp_path: Path, most: int) -> None:
    """The limit on a file's length stands for it."""
    (tmp_path / "state_schema.json").write_text("{}")
    store = StateStore(tmp_path)
    store.begin({"pad": "x" * 1500})
    assert _started(FULL, tmp_path, most).wait() == 0
    assert store.read() == {"pad": "x" * 1500}
    with store.edit() as state:
        state["pad"] = "z"
    assert [change.number for change in store.history()] == [2, 1]
