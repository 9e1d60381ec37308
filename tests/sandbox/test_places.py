from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.doctor.attack import HOSTILE
from ratchet.sandbox import Policy
from tests.sandbox.conftest import SECRET
from tests.sandbox.places import (
    NOBODY,
    as_here,
    ordinary_user,
    ordinary_user_without_namespaces,
    python_as,
    root_without_rights,
    without_landlock,
    without_namespaces,
    without_user_namespaces,
)
from tests.sandbox.ways import attack

PROGRAM = """
import asyncio, json
from pathlib import Path
from ratchet.sandbox import Bounds, Layer, Node, Policy, IsolationRefused, Stopped, granted, run
ROOT = Path("/")
async def main():
    {body}
print(json.dumps(asyncio.run(main())))
"""


def program(body: str) -> str:
    return PROGRAM.format(body=body.strip().replace("\n", "\n    "))


ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces without them")


def test_an_ordinary_user_gets_every_layer() -> None:
    body = """
node = await run(Node("def run(x):\\n    return x + 1", scratch=True), stdin=b"1")
command = await run(["sh", "-c", "id -u; echo a > /tmp/file; cat /tmp/file"], cwd=ROOT)
return [node.value, command.stdout.decode(), sorted(node.layers) == sorted(command.layers), len(node.layers)]
"""
    assert python_as(ordinary_user, program(body)) == [2, "65534\na\n", True, 11]


def test_a_fork_bomb_of_an_ordinary_user_is_stopped() -> None:
    body = """
line = "bomb() { bomb | bomb & }; bomb; sleep 30"
done = await run(["bash", "-c", line], cwd=ROOT, bounds=Bounds(wall_seconds=10, processes=32))
return [done.stopped, done.wall_ms < 8000]
"""
    assert python_as(ordinary_user, program(body)) == ["processes", True]


def test_without_namespaces_commands_are_refused_and_say_why() -> None:
    body = """
try:
    await run(["true"], cwd=ROOT)
except IsolationRefused as refused:
    return [str(refused), refused.hint]
"""
    said, hint = python_as(without_namespaces, program(body))
    assert "pid namespace: " in said
    assert "Operation not permitted" in said
    assert "ratchet doctor" in hint


def test_without_namespaces_a_command_runs_only_for_those_who_accept_it() -> None:
    body = """
done = await run(["sh", "-c", "(setsid sleep 60 &); id -u"], cwd=ROOT, policy=Policy(floor=frozenset()))
return [done.exit_code, [str(layer) for layer in Layer if "namespace" in layer and layer in done.layers]]
"""
    assert python_as(without_namespaces, program(body)) == [0, []]


def test_without_namespaces_nodes_are_still_held(secret: Path, listener: tuple[str, int]) -> None:
    attacks = [
        ("read_file", str(secret)),
        ("write_file", str(secret.parent / "new")),
        ("tcp", list(listener)),
        ("udp", list(listener)),
        ("fork", 1),
        ("program", "/bin/true"),
        ("signal_process", 1),
        ("signal_parent", None),
        ("environment_of_others", None),
    ]
    body = f"""
ends = []
for name, given in {attacks!r}:
    done = await run(Node(Path({str(HOSTILE)!r}), name), stdin=json.dumps(given).encode())
    ends.append(done.ok and done.value)
late = await run(Node("def run(_):\\n    while True: pass"), bounds=Bounds(wall_seconds=0.3))
fine = await run(Node("def run(x):\\n    return x"), stdin=b"5")
return [ends, late.stopped, fine.value, "mount namespace" in fine.layers]
"""
    assert python_as(without_namespaces, program(body)) == [[False] * len(attacks), "wall", 5, False]
    assert secret.read_text() == SECRET


PLACES = [
    as_here,
    ordinary_user,
    ordinary_user_without_namespaces,
    root_without_rights,
    without_namespaces,
    without_user_namespaces,
]


@pytest.fixture
def own_file(secret: Path) -> Iterator[Path]:
    """A file that belongs to whoever runs Ratchet in a place, and can be reached from there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        yield Path(shutil.copy(secret, directory))


@pytest.mark.parametrize("place", PLACES)
def test_a_node_changes_nothing_of_a_file_that_is_not_its_own(
    place: Callable[[], None], own_file: Path
) -> None:
    """Neither its mode nor its times, also of what belongs to the user who runs Ratchet: no layer but the view of files
    and the filter knows of these."""
    own_file.parent.chmod(0o755)
    if os.geteuid() == 0 and "ordinary" in place.__name__:
        os.chown(own_file, NOBODY, NOBODY)
    paths = ["/dev/null", "/dev/full", "/dev/zero", os.__file__, str(own_file)]
    body = f"""
given = json.dumps({paths!r}).encode()
import sys
sys.path.insert(0, {str(HOSTILE.parent)!r})
import hostile
outside = hostile.touch_foreign({[str(own_file)]!r})
done = await run(Node(Path({str(HOSTILE)!r}), "touch_foreign"), stdin=given)
return [[each.split()[0] for each in outside][:3], done.value, done.problem]
"""
    assert python_as(place, program(body)) == [["chmod", "fchmod", "utime"], [], None]


@ONLY_ROOT
def test_root_without_user_namespaces_runs_commands_that_change_nothing(own_file: Path) -> None:
    paths = ["/dev/null", "/dev/full", os.__file__, str(own_file)]
    body = f"""
import sys
line = "import hostile; print(hostile.touch_foreign({paths!r}))"
shown = (Path({str(HOSTILE.parent)!r}), Path({str(own_file.parent)!r}))
policy = Policy(readable=shown, environment={{"PYTHONPATH": str(shown[0])}})
done = await run([sys.executable, "-S", "-c", line], cwd=ROOT, policy=policy)
return [done.stdout.decode(), done.stderr.decode(), Layer.USER in done.layers]
"""
    assert python_as(without_user_namespaces, program(body)) == ["[]\n", "", False]


def test_a_node_with_scratch_changes_only_what_lies_in_it(secret: Path) -> None:
    paths = ["/dev/null", "/dev/full", os.__file__, str(secret)]
    policy = Policy(readable=(secret.parent,))
    assert attack("node", "touch_foreign", paths, scratch=True, policy=policy).value == []


@pytest.mark.parametrize("everything", [False, True])
def test_a_command_changes_nothing_of_a_file_that_is_not_its_own(secret: Path, everything: bool) -> None:
    policy = Policy(readable=(secret.parent,), see_system=everything)
    paths = ["/dev/null", "/dev/full", "/dev/tty", os.__file__, str(secret)]
    assert attack("command", "touch_foreign", paths, policy=policy).value == []


def test_no_lease_can_be_had_on_a_file_of_one_s_own_either(tmp_path: Path) -> None:
    """A process of the machine that opens such a file would wait."""
    (tmp_path / "own").write_text("x")
    policy = Policy(writable=(tmp_path,))
    got = attack("command", "touch_foreign", [str(tmp_path / "own")], policy=policy).value
    assert [each.split()[0] for each in got][:3] == ["chmod", "fchmod", "utime"]
    assert not any(each.startswith("lease ") for each in got)


@pytest.mark.parametrize("guarded", [True, False])
def test_a_file_that_may_be_read_is_not_emptied_where_landlock_does_not_guard_it(
    guarded: bool, secret: Path
) -> None:
    """Landlock does so only since its third version, and truncating needs no right to write then."""
    text = f"""
import json, os
from ratchet.sandbox.inside import linux, seccomp
linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
seccomp.node_filter(os.getpid(), writes=False, guards_truncation={guarded}).install()
for empty in (lambda: os.open({str(secret)!r}, os.O_RDONLY | os.O_TRUNC), lambda: os.truncate({str(secret)!r}, 0)):
    try:
        empty()
    except PermissionError:
        pass
print(json.dumps(os.open({str(secret)!r}, os.O_RDONLY) > 0))
"""
    assert python_as(as_here, text) is True
    assert (secret.read_text() == SECRET) is not guarded


def test_root_without_rights_runs_nodes() -> None:
    body = """
done = await run(Node("def run(x):\\n    return x + 1"), stdin=b"1")
return done.value
"""
    assert python_as(root_without_rights, program(body)) == 2


@pytest.mark.parametrize("place", [as_here, without_landlock])
def test_a_command_cannot_pretend_to_have_been_cancelled(place: Callable[[], None]) -> None:
    """Landlock keeps it from signalling the first process of its sandbox, where that is new enough."""
    body = f"""
import signal, sys
call = "import hostile; hostile.signal_first(int(__import__('sys').argv[1]))"
policy = Policy(readable=(Path({str(HOSTILE.parent)!r}),), environment={{"PYTHONPATH": {str(HOSTILE.parent)!r}}})
ends = []
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD):
    line = [sys.executable, "-S", "-c", "try:\\n  " + call + "\\nexcept OSError: pass", str(int(number))]
    done = await run(line, cwd=ROOT, policy=policy)
    ends.append([done.exit_code, done.signal, done.stopped, done.stderr.decode()])
return ends
"""
    assert python_as(place, program(body)) == [[0, None, None, ""]] * 3


def test_without_namespaces_a_command_shares_no_memory_that_stays() -> None:
    """It would be the machine's own: seen by all and there after the command has ended."""
    body = """
import sys
line = "import ctypes; libc = ctypes.CDLL(None); print([libc.shmget(0, 4096, 0o1600), libc.semget(0, 1, 0o1600)])"
done = await run([sys.executable, "-c", line], cwd=ROOT, policy=Policy(floor=frozenset()))
return done.stdout.decode()
"""
    assert python_as(without_namespaces, program(body)) == "[-1, -1]\n"


# A node that has begun, and the parent that it was forked from.
SLEEPER = """
import os, signal
def below(pid):
    found = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [each for child in found for each in below(child)]
begun = asyncio.Event()
source = "import os, time\\ndef run(_):\\n    os.write(2, b'here')\\n    time.sleep(60)"
running = asyncio.create_task(run(Node(source), overhear=lambda _said: begun.set()))
await asyncio.wait_for(begun.wait(), 60)
*_, parent, node = below(os.getpid())
"""


@pytest.mark.parametrize("place", [as_here, without_namespaces])
def test_a_node_looked_at_from_outside_has_no_rights_and_all_limits(place: Callable[[], None]) -> None:
    body = """
status = dict(line.split(":", 1) for line in Path(f"/proc/{node}/status").read_text().splitlines())
rights = [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp")]
limits = Path(f"/proc/{node}/limits").read_text()
names = ("Max core file size", "Max locked memory", "Max msgqueue size", "Max open files")
most = [int(limits.split(name)[1].split()[1]) for name in names]
running.cancel()
await asyncio.wait([running])
return [rights, most]
"""
    rights, most = python_as(place, program(SLEEPER + body))
    assert rights == [*["0" * 16] * 4, "1", "2"]
    assert [value <= bound for value, bound in zip(most, (0, 8 << 20, 0, 4096), strict=True)] == [True] * 4


@pytest.mark.parametrize("place", [as_here, without_namespaces])
def test_nodes_end_with_their_parent(place: Callable[[], None]) -> None:
    body = """
os.kill(parent, signal.SIGKILL)
ended = await asyncio.gather(running, return_exceptions=True)
for _ in range(100):
    if not Path(f"/proc/{node}").exists():
        break
    await asyncio.sleep(0.05)
return [type(ended[0]).__name__, Path(f"/proc/{node}").exists()]
"""
    assert python_as(place, program(SLEEPER + body)) == ["Broken", False]


def test_without_namespaces_there_is_no_private_scratch() -> None:
    body = """
try:
    await run(Node("def run(x):\\n    return x", scratch=True))
except IsolationRefused as refused:
    return str(refused)
"""
    assert "mount namespace" in python_as(without_namespaces, program(body))


@pytest.mark.soak
@pytest.mark.parametrize("place", [ordinary_user, without_namespaces])
def test_the_doctor_tells_what_the_sandbox_found(place: object) -> None:
    body = """
from ratchet.doctor import sandbox_layers
told = {check.name: check.status == "ok" for check in sandbox_layers()}
return all(told[f"sandbox {layer}"] == (layer in granted()) for layer in Layer)
"""
    assert python_as(place, program(body)) is True  # type: ignore[arg-type]


IN_FLIGHT = """
import sys, time
begun = asyncio.Event()
call = "import hostile; hostile.send_descriptors(60)"
shown = Path({directory!r})
policy = Policy(readable=(shown,), environment={{"PYTHONPATH": str(shown)}}, **{floor})
line = [sys.executable, "-S", "-c", call]
running = asyncio.create_task(run(line, cwd=ROOT, policy=policy, overhear=lambda _said: begun.set()))
await asyncio.wait_for(begun.wait(), 60)
began = time.monotonic()
node = await run(Node("def run(x):\\n    return x"), stdin=b"5")
command = await run(["true"], cwd=ROOT, policy=Policy(**{floor}))
took = time.monotonic() - began
running.cancel()
await asyncio.wait([running])
return [node.value, command.exit_code, took < 20]
"""


@pytest.mark.parametrize(
    "place",
    [as_here, ordinary_user, ordinary_user_without_namespaces, without_namespaces, without_user_namespaces],
)
def test_descriptors_on_their_way_keep_no_other_sandbox_from_starting(place: Callable[[], None]) -> None:
    """The kernel counts those of a user together, and Ratchet itself sends some to start a sandbox."""

    def with_few() -> None:
        place()
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))

    floor = '{"floor": frozenset()}'
    body = IN_FLIGHT.format(directory=str(HOSTILE.parent), floor=floor)
    assert python_as(with_few, program(body)) == [5, 0, True]


@pytest.mark.parametrize(
    "place",
    [as_here, ordinary_user, pytest.param(without_user_namespaces, marks=ONLY_ROOT)],
)
def test_a_command_leaves_most_of_what_its_user_may_watch_files_with(place: Callable[[], None]) -> None:
    body = f"""
import sys
call = "import hostile; print(hostile.watch_files(None))"
policy = Policy(readable=(Path({str(HOSTILE.parent)!r}),), environment={{"PYTHONPATH": {str(HOSTILE.parent)!r}}})
done = await run([sys.executable, "-S", "-c", call], cwd=ROOT, policy=policy)
return [int(done.stdout or 0), Layer.USER in done.layers]
"""
    most = int(Path("/proc/sys/fs/inotify/max_user_instances").read_text())
    count, has_users = python_as(place, program(body))
    assert (0 < count <= most // 8) if has_users else count == 0
