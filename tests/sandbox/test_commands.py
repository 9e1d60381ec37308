from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from ratchet.doctor.attack import processes_with
from ratchet.kernel import Misuse
from ratchet.sandbox import (
    Bounds,
    CannotStart,
    Finished,
    Policy,
    Stopped,
    granted,
    run,
    start,
    wrapped,
)
from tests.sandbox.ways import soon

ROOT = Path("/")
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def shell(line: str, *, cwd: Path = ROOT, policy: Policy | None = None, **bounds: float) -> Finished:
    return asyncio.run(run(["/bin/sh", "-c", line], cwd=cwd, bounds=Bounds(**bounds), policy=policy))  # type: ignore[arg-type]


def test_how_a_command_ended_is_told() -> None:
    assert (shell("exit 3").exit_code, shell("exit 3").signal) == (3, None)
    assert (shell("kill -TERM $$").exit_code, shell("kill -TERM $$").signal) == (None, signal.SIGTERM)
    assert shell("exit 3").problem == "ended with exit code 3"
    assert shell("kill -40 $$").problem == "killed by signal 40"


def test_every_record_names_the_layers_that_were_on() -> None:
    done = shell("true")
    assert set(done.layers) == granted().names - {"overlayfs"}
    assert done.ok


def test_a_program_or_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="absent-program cannot be run: No such file"):
        asyncio.run(run(["absent-program"], cwd=ROOT))
    with pytest.raises(CannotStart, match="has no directory"):
        shell("true", cwd=tmp_path / "absent")
    with pytest.raises(CannotStart, match="has no directory"):
        shell("true", cwd=tmp_path)  # it is there, but the policy does not show it


@pytest.mark.parametrize("argv", [[], ["true", "a\0b"]])
def test_an_argv_that_cannot_be_is_misuse(argv: list[str]) -> None:
    with pytest.raises(Misuse):
        asyncio.run(run(argv, cwd=ROOT))


def test_signals_and_masks_are_as_a_program_expects_them() -> None:
    done = shell("grep -E 'Sig(Blk|Ign)' /proc/self/status; umask; ulimit -c; yes | head -1")
    _, blocked, _, ignored, *rest = done.stdout.split()
    assert rest == [b"0022", b"0", b"y"]
    # Signals 32 and 33 are the C library's own, and no program can change them.
    assert [int(mask, 16) & ~(0b11 << 31) for mask in (blocked, ignored)] == [0, 0]


@pytest.mark.soak
def test_git_gcc_and_pytest_work_as_usual(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(tmp_path):\n    (tmp_path / 'a').write_text('b')\n")
    (tmp_path / "main.c").write_text("int main(void) { return 7; }\n")
    lines = [
        "git init -q .",
        "git add .",
        "git -c user.name=n -c user.email=e commit -qm first",
        "git log --oneline",
    ]
    lines += [f"{sys.executable} -m pytest -q -p no:cacheprovider test_it.py"]
    if shutil.which("gcc"):
        lines += ["gcc main.c -o main", "./main; test $? = 7"]
    policy = Policy(writable=(tmp_path,), environment=PATH)
    done = shell(" && ".join(lines), cwd=tmp_path, policy=policy, processes=200)
    assert done.ok, done.stderr
    assert b"1 passed" in done.stdout


def test_lines_come_while_the_command_runs(tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    line = f"echo one; echo oops >&2; read x < {fifo}; echo two; printf three"

    async def follow() -> tuple[list[bytes], Finished]:
        policy = Policy(writable=(tmp_path,))
        async with start(["sh", "-c", line], cwd=tmp_path, policy=policy) as running:
            lines = []
            async for each in running:
                lines.append(each)
                if each == b"one\n":
                    await asyncio.to_thread(fifo.write_text, "go\n")
            assert running.stderr_tail == b"oops\n"
            return lines, await running.wait()

    lines, done = asyncio.run(follow())
    assert lines == [b"one\n", b"two\n", b"three"]
    assert (done.ok, done.stdout, done.stderr) == (True, b"", b"oops\n")


def test_leaving_the_block_ends_the_command() -> None:
    mark = uuid.uuid4().hex

    async def leave() -> float:
        async with start(
            ["sh", "-c", f"trap '' TERM; sleep 60 & echo a; wait; : {mark}"], cwd=ROOT
        ) as running:
            async for _ in running:
                break
            assert processes_with(mark)
            began = time.monotonic()
        return time.monotonic() - began

    assert asyncio.run(leave()) < 30  # the command ignores being asked, and would take a minute
    assert processes_with(mark) == []


def test_a_stopped_command_tells_what_it_had_used() -> None:
    async def stop() -> Finished:
        async with start(["sh", "-c", "echo a; while :; do :; done"], cwd=ROOT) as running:
            async for _ in running:
                break
            await asyncio.sleep(0.2)
            running.stop()
            return await running.wait()

    done = asyncio.run(stop())
    assert (done.stopped, done.ok) == (Stopped.CANCELLED, False)
    assert done.cpu_ms > 0


def test_a_line_without_end_is_stopped_at_the_bound() -> None:
    async def follow() -> Finished:
        bounds = Bounds(output_bytes=300_000)
        async with start(["sh", "-c", "yes | tr -d '\\n'"], cwd=ROOT, bounds=bounds) as running:
            async for _ in running:
                pass
            return await running.wait()

    assert asyncio.run(follow()).stopped is Stopped.OUTPUT


def test_a_command_that_does_not_read_its_input_ends_all_the_same() -> None:
    done = asyncio.run(run(["true"], cwd=ROOT, stdin=b"x" * (1 << 20)))
    assert done.ok


def wrap(line: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    policy = Policy(environment={"KEY": "named only"})
    argv = wrapped(["/bin/sh", "-c", line, "name"], cwd=ROOT, policy=policy, bounds=Bounds(wall_seconds=5))
    assert "named only" not in " ".join(argv)
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*argv, "more"], capture_output=True, env={"KEY": "its value", "OTHER": "hidden"}, check=False, **more
    )


def test_a_wrapped_command_behaves_like_the_command() -> None:
    done = wrap('cat; echo "$KEY $OTHER $1"; echo oops >&2; exit 3', input=b"given\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"given\nits value  more\n", b"oops\n")
    assert wrap("kill -SEGV $$").returncode == -signal.SIGSEGV


def test_a_wrapped_command_that_cannot_run_says_so() -> None:
    done = subprocess.run(wrapped(["absent"], cwd=ROOT, policy=Policy()), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (
        125,
        b"ratchet sandbox: absent cannot be run: No such file or directory\n",
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_ending_a_wrapped_command_ends_its_tree(number: int) -> None:
    mark = uuid.uuid4().hex
    line = f"setsid sh -c 'sleep 60; : {mark}' & echo a; wait; : {mark}"
    argv = wrapped(["sh", "-c", line], cwd=ROOT, policy=Policy(), bounds=Bounds(wall_seconds=50))
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"a\n"
    process.send_signal(number)
    assert process.wait(30) == -number
    process.stdout.close()
    assert soon(lambda: not processes_with(mark))


def test_what_is_heard_is_not_bounded_and_not_held() -> None:
    heard = bytearray()

    async def hear_all() -> Finished:
        line = "head -c 3000000 /dev/zero; head -c 1000000 /dev/zero >&2"
        bounds = Bounds(wall_seconds=60, output_bytes=1000)
        async with start(["sh", "-c", line], cwd=ROOT, bounds=bounds, hear=heard.extend) as running:
            return await running.wait()

    done = asyncio.run(hear_all())

    assert done.ok
    assert (done.stdout, done.stderr) == (b"", b"")
    assert len(heard) == 4_000_000


def test_what_is_heard_comes_before_the_end_of_the_run() -> None:
    async def hear_first() -> bytes:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        async with start(["sh", "-c", "echo up; sleep 60"], cwd=ROOT, hear=heard.put_nowait):
            return await asyncio.wait_for(heard.get(), 30)

    assert asyncio.run(hear_first()) == b"up\n"


def test_only_the_stderr_of_a_command_is_overheard(tmp_path: Path) -> None:
    heard = bytearray()
    argv = ["sh", "-c", "echo out; echo err >&2"]
    policy = Policy(readable=(tmp_path,), environment={"PATH": "/usr/bin:/bin"})
    done = asyncio.run(run(argv, cwd=tmp_path, policy=policy, overhear=heard.extend))
    assert (done.stdout, done.stderr, bytes(heard)) == (b"out\n", b"err\n", b"err\n")
