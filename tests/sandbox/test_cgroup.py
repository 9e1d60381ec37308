"""A cgroup for each command: a real one where this user can make one, and directories laid out like one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.sandbox import Bounds, Policy, granted, surroundings, wrapped
from ratchet.sandbox.inside import cgroup, names
from ratchet.sandbox.inside.cgroup import Delegation, RunGroup
from ratchet.sandbox.inside.init import has_own_pid_max
from ratchet.sandbox.inside.spec import CommandSpec
from ratchet.sandbox.policy import command_bounds, spec_of

MIB = 1024 * 1024
NO_SYSTEMD = "/nonexistent"


def spec(*argv: str, **bounds: Any) -> CommandSpec:
    policy = Policy(environment={"PATH": "/usr/bin:/bin"})
    return spec_of(argv or ("true",), Path("/"), Bounds(**bounds), policy)


class Machine:
    """Directories laid out as those of a machine with a cgroup, in which this process is."""

    def __init__(self, top: Path, own: str, controllers: str = "cpuset cpu io memory pids") -> None:
        self.proc, self.mount = top / "proc", top / "cgroup"
        self.own = self.mount / own
        self.own.mkdir(parents=True)
        self.proc.mkdir()
        (self.proc / "cgroup").write_text(f"4:memory:/elsewhere\n0::/{own}\n")
        (self.proc / "mountinfo").write_text(
            f"21 1 0:20 / /proc rw - proc proc rw\n30 1 0:26 / {self.mount} rw shared:9 - cgroup2 cgroup2 rw\n"
        )
        for file, text in {
            "controllers": controllers,
            "procs": "7\n8\n",
            "subtree_control": "",
            "type": "",
        }.items():
            (self.own / f"cgroup.{file}").write_text(text)


def test_a_delegated_cgroup_is_found(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "user.slice/app")
    found = cgroup.find(str(machine.proc), NO_SYSTEMD)
    assert found == Delegation(str(machine.own), ("memory", "pids", "cpu", "io"))


def test_it_is_found_again_from_where_ratchet_s_own_processes_went(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "app")
    (machine.proc / "cgroup").write_text(f"0::/app/{cgroup.OWN}\n")
    assert cgroup.find(str(machine.proc), NO_SYSTEMD).directory == str(machine.own)


def test_one_without_the_controllers_that_count_is_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "app", controllers="cpu hugetlb")
    with pytest.raises(OSError, match="no controller memory or pids"):
        cgroup.find(str(machine.proc), NO_SYSTEMD)


def test_systemd_must_have_marked_what_it_delegates(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "app")
    with pytest.raises(OSError, match="systemd has not delegated"):
        cgroup.find(str(machine.proc), systemd="/")
    os.setxattr(machine.own, "user.delegate", b"1")
    assert cgroup.find(str(machine.proc), systemd="/").directory == str(machine.own)


def test_the_scope_that_was_asked_for_needs_no_mark(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "app.slice/ratchet-scope-12ab.scope")
    assert cgroup.find(str(machine.proc), systemd="/").directory == str(machine.own)


def test_systemd_is_asked_for_a_scope_only_where_it_lives_as_long() -> None:
    asked = cgroup.scope_argv({"XDG_RUNTIME_DIR": "/run/user/7", "PATH": "/bin"})
    if not Path("/run/systemd/system").exists():
        assert asked == []
    elif asked:
        assert asked[-1] == "--"
        assert "--property=Delegate=yes" in asked
        assert ("--user" in asked) == ("XDG_RUNTIME_DIR=/run/user/7" in asked) == (os.geteuid() != 0)


def test_processes_are_moved_away_so_that_limits_can_be_handed_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "app")
    (machine.own / cgroup.OWN).mkdir()
    cgroup.enable(Delegation(str(machine.own), ("memory", "pids")))
    assert (machine.own / "cgroup.subtree_control").read_text() == "+memory +pids"
    # A file of the kernel takes one number at a time; this one keeps the last.
    assert (machine.own / cgroup.OWN / "cgroup.procs").read_text() == "8"


def test_the_limits_of_a_run_stand_above_its_processes(tmp_path: Path) -> None:
    top = tmp_path / f"ratchet-run-{os.getpid()}"
    (top / "processes").mkdir(parents=True)
    (top / "processes" / "cgroup.procs").touch()
    (top / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (top / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 0\n")
    controllers = ("memory", "pids", "cpu", "io")
    group = RunGroup(Delegation(str(tmp_path), controllers), spec(memory_bytes=64 * MIB, processes=10))
    assert (top / "memory.max").read_text() == str(64 * MIB)
    assert (top / "memory.oom.group").read_text() == "1"
    assert (top / "pids.max").read_text() == str(8 * 10 + 64)
    assert (top / "cpu.weight").read_text() == (top / "io.weight").read_text() == "50"
    assert group.cpu_seconds == 1.5
    assert group.kept == ["cpu_seconds", "memory_bytes", "processes"]
    assert not group.out_of_memory
    (top / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 3\n")
    assert group.out_of_memory


def test_a_record_says_which_bounds_a_cgroup_kept() -> None:
    bounds = Bounds(cpu_seconds=5, processes=10)
    kept = command_bounds(
        bounds, granted().names, counted=False, grouped=("cpu_seconds", "memory_bytes", "processes")
    )
    assert kept["memory_bytes"] == "the kernel, by a cgroup"
    assert kept["processes"] == "looks every 25 ms, and a cgroup at 144 tasks"
    assert kept["cpu_seconds"] == "looks every 25 ms at the count of a cgroup"
    assert "cgroup" not in str(command_bounds(bounds, granted().names, counted=False))


def _mounted() -> str | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return line.split()[4]
    return None


@pytest.fixture
def real(request: pytest.FixtureRequest) -> Iterator[Delegation]:
    """A directory of the real cgroups of this machine in which this user can make some, with the controllers there."""
    try:
        found: Delegation | None = cgroup.find()
    except OSError:
        found = None
    if found is not None:
        cgroup.enable(found)
        controllers, top = found.controllers, found.directory
    else:
        controllers, top = (), _mounted() or ""
    if not top or not os.access(top, os.W_OK):
        pytest.skip("this user can make no cgroup here")
    directory = Path(top) / f"ratchet-test-{uuid.uuid4().hex}"
    directory.mkdir()
    if controllers:
        (directory / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in controllers))
    yield Delegation(str(directory), controllers)
    for below in sorted(directory.rglob("*"), key=lambda path: -len(path.parts)):
        if below.is_dir():
            below.rmdir()
    directory.rmdir()


LAUNCH = """
import json, sys
sys.path.insert(0, sys.argv[1])
from inside.cgroup import Delegation
from inside.launch import launch
from inside.spec import CommandSpec
directory, controllers = json.loads(sys.argv[2])
told = launch(CommandSpec.from_json(sys.argv[3]), delegation=Delegation(directory, tuple(controllers)))
import os
os.write(int(sys.argv[4]), json.dumps(told).encode())
"""


def launched(delegation: Delegation, program: str, **bounds: Any) -> tuple[dict[str, Any], str]:
    """The report of a run in a cgroup below `delegation`, and what it printed."""
    hear, tell = os.pipe()
    inside = str(Path(cgroup.__file__).parents[1])
    description = spec("python3", "-c", program, **bounds).to_json()
    argv = [sys.executable, "-I", "-S", "-c", LAUNCH, inside, json.dumps(delegation), description, str(tell)]
    done = subprocess.run(argv, capture_output=True, pass_fds=[tell], timeout=300, check=False)
    os.close(tell)
    with os.fdopen(hear) as file:
        said = file.read()
    assert said, done.stderr
    return json.loads(said), done.stdout.decode()


OWN = "print(open('/proc/self/cgroup').read().split('0::')[1].strip())"


def test_a_command_is_in_a_cgroup_of_its_own_that_is_gone_afterwards(real: Delegation) -> None:
    told, said = launched(real, OWN)
    assert said.strip().endswith("/processes")
    assert "/ratchet-run-" in said
    assert names.CGROUP in told["layers"]
    assert "cpu_seconds" in told["grouped"]
    left = Path(real.directory).glob("ratchet-run-*")
    if os.geteuid() == 0:  # the sandbox's own user may not remove it, and the next run does
        launched(real, "0")
    assert len(list(left)) <= 1


def test_cpu_time_that_no_process_waited_for_is_the_cgroup_s_count(real: Delegation) -> None:
    burn = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "while True:\n"
        "    if os.fork() == 0:\n"
        "        while time.process_time() < 0.004: pass\n"
        "        os._exit(0)\n"
        "    time.sleep(0.001)\n"
    )
    told, _ = launched(real, burn, cpu_seconds=1, wall_seconds=120)
    assert told["stopped"] == "cpu"
    assert told["counted"] is False
    assert 900 < told["cpu_ms"] < 3_000


def test_a_cgroup_ends_the_tree_that_takes_more_memory(real: Delegation) -> None:
    told, _ = launched(real, "x = bytearray(1 << 30)", memory_bytes=96 * MIB, wall_seconds=120)
    assert told["status"] != 0
    if "memory" in real.controllers:
        assert "memory_bytes" in told["grouped"]


def test_only_a_linux_with_a_limit_of_its_own_for_each_namespace_is_given_one() -> None:
    """Before, that file is the machine's, and root lowering it for a sandbox would leave no process to anybody."""
    assert has_own_pid_max("6.14.0-rc1")
    assert has_own_pid_max("7.0")
    assert not any(map(has_own_pid_max, ("6.13.12-generic", "6.1.176", "5.15.0-91", "unknown")))


def test_a_wrapped_run_tells_what_it_runs_under(tmp_path: Path) -> None:
    begun, bounds = tmp_path / "begun", Bounds(memory_bytes=None, disk_bytes=None)
    assert surroundings(begun, bounds) == ((), {})
    argv = wrapped(["true"], cwd=Path("/"), policy=Policy(), bounds=bounds, begun=begun)
    subprocess.run(argv, check=True, timeout=120)
    layers, kept = surroundings(begun, bounds)
    assert "pid namespace" in layers
    assert set(kept) == {"wall_seconds", "processes", "file_bytes"}
