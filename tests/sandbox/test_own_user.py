"""Ratchet as root: each sandbox is a user of its own, and what it makes is root's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.doctor.attack import processes_with
from ratchet.sandbox import Finished, Node, Policy, granted, run, start, wrapped
from ratchet.sandbox.inside import linux
from tests.sandbox.places import as_here, ordinary_user, python_as
from tests.sandbox.test_places import SLEEPER, program

FIRST = 0x70000000
needs_root = pytest.mark.skipif(os.geteuid() != 0 or "own user" not in granted(), reason="needs root")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace that only its owner can enter, with a file that only its owner can read."""
    directory = tmp_path / "work"
    directory.mkdir(mode=0o700)
    (directory / "old").write_text("old\n")
    (directory / "old").chmod(0o600)
    return directory


def shell(line: str, work: Path, **policy: tuple[Path, ...]) -> Finished:
    return asyncio.run(run(["sh", "-c", line], cwd=work, policy=Policy(**{"writable": (work,), **policy})))  # type: ignore[arg-type]


@needs_root
def test_a_command_reads_and_writes_its_workspace_and_all_of_it_stays_root_s(work: Path) -> None:
    line = "cat old; echo x >> old; echo new > new; mkdir sub; chmod 750 sub; ln -s new link; id -u; ls -ln"
    done = shell(line, work)
    assert done.ok, done.stderr
    assert "own user" in done.layers
    assert done.stdout.decode().split()[:2] == ["old", "1000"]
    assert b" 1000 1000 " in done.stdout
    found = {path.name: path.lstat() for path in work.rglob("*")}
    assert {(each.st_uid, each.st_gid) for each in found.values()} == {(0, 0)}
    assert (found["new"].st_mode & 0o7777, found["sub"].st_mode & 0o7777) == (0o644, 0o750)
    assert (work / "old").read_text() == "old\nx\n"


def owner_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


@needs_root
def test_from_outside_it_is_neither_root_nor_the_same_user_as_another(work: Path) -> None:
    marks = [uuid.uuid4().hex, uuid.uuid4().hex]

    async def users() -> list[int]:
        policy = Policy(writable=(work,))
        async with (
            start(["sh", "-c", f"echo a; sleep 60; : {marks[0]}"], cwd=work, policy=policy) as one,
            start(["sh", "-c", f"echo a; sleep 60; : {marks[1]}"], cwd=work, policy=policy) as other,
        ):
            for running in (one, other):
                async for _ in running:
                    break
            return [owner_of(processes_with(mark)[0]) for mark in marks]

    one, other = asyncio.run(users())
    assert one >= FIRST
    assert other >= FIRST
    assert one != other


@needs_root
def test_it_cannot_read_what_only_root_may_although_it_is_shown_the_system() -> None:
    """Were it root without capabilities, root's ownership would be enough."""
    secret = Path("/usr/local/share") / f"ratchet-test-{os.getpid()}"
    secret.write_text("secret")
    secret.chmod(0o600)
    try:
        for policy in (Policy(), Policy(see_system=True)):
            done = asyncio.run(run(["cat", str(secret)], cwd=Path("/"), policy=policy))
            assert b"Permission denied" in done.stderr
    finally:
        secret.unlink()


@needs_root
def test_files_of_others_stay_theirs(work: Path) -> None:
    (work / "theirs").write_text("x")
    os.chown(work / "theirs", 1234, 1234)
    done = shell("echo y > theirs || cat theirs; rm -f theirs; echo z > theirs", work)
    assert b"cannot create theirs" in done.stderr
    assert (work / "theirs").stat().st_uid == 0  # its directory was its own, so it could replace it


@needs_root
def test_what_is_shown_to_be_read_is_read_whoever_may_read_it(work: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed" / "file").write_text("x")
    (tmp_path / "closed" / "file").chmod(0o600)
    done = shell(
        f"cat {tmp_path}/closed/file; echo y > {tmp_path}/closed/file", work, readable=(tmp_path / "closed",)
    )
    assert done.stdout == b"x"
    assert (tmp_path / "closed" / "file").read_text() == "x"


@needs_root
def test_git_takes_a_repository_of_root_for_its_own(work: Path) -> None:
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    line = "git add -A && git -c user.name=n -c user.email=e commit -qm first && git log --oneline | wc -l"
    done = asyncio.run(
        run(
            ["sh", "-c", line],
            cwd=work,
            policy=Policy(writable=(work,), environment={"PATH": "/usr/bin:/bin", "HOME": "/tmp"}),
        )
    )
    assert (done.stdout, done.stderr) == (b"1\n", b"")


@needs_root
def test_it_may_open_its_own_output_by_name(work: Path) -> None:
    done = shell("echo out > /dev/stdout; echo err > /dev/stderr; echo in | cat /dev/stdin", work)
    assert (done.stdout, done.stderr) == (b"out\nin\n", b"err\n")


@needs_root
def test_a_wrapped_command_has_a_user_of_its_own_and_ends_with_its_starter(work: Path) -> None:
    argv = wrapped(
        [sys.executable, "-c", "import os; print(os.stat('old').st_uid)"],
        cwd=work,
        policy=Policy(writable=(work,)),
    )
    done = subprocess.run(argv, capture_output=True, check=False, env={})
    assert (done.stdout, done.stderr) == (b"1000\n", b"")


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that cannot be mounted for another user."""
    for name in ("lower", "upper", "inner", "merged"):
        (tmp_path / name).mkdir()
    options = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/inner"
    linux.mount("overlay", str(tmp_path / "merged"), "overlay", 0, options)
    yield tmp_path / "merged"
    linux.libc.umount2(str(tmp_path / "merged").encode(), linux.MNT_DETACH)


@needs_root
def test_where_files_cannot_be_handed_over_it_works_as_root_and_says_so(overlay: Path) -> None:
    done = shell("echo x > new; cat new", overlay)
    assert done.stdout == b"x\n"
    assert "own user" not in done.layers
    assert (overlay / "new").stat().st_uid == 0


@needs_root
def test_nodes_have_a_user_of_their_own_unless_they_are_shown_files(work: Path) -> None:
    body = """
found = Path(f"/proc/{node}").stat().st_uid
running.cancel()
await asyncio.wait([running])
return found
"""
    assert python_as(as_here, program(SLEEPER + body)) >= FIRST
    node = Node("from pathlib import Path\ndef run(x):\n    return Path(x).read_text()")
    shown = asyncio.run(run(node, stdin=f'"{work}/old"'.encode(), policy=Policy(readable=(work,))))
    assert shown.value == "old\n"
    assert "own user" not in shown.layers


def test_an_ordinary_user_stays_who_it_is() -> None:
    body = """
done = await run(["id", "-u"], cwd=ROOT)
import os
return [done.stdout.decode().strip() == str(os.getuid()), "own user" in done.layers]
"""
    assert python_as(ordinary_user, program(body)) == [True, False]
