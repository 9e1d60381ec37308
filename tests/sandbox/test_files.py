from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from ratchet.doctor.attack import HOSTILE
from ratchet.kernel import Misuse
from ratchet.sandbox import CannotStart, Finished, Node, Policy, run
from tests.sandbox.conftest import SECRET
from tests.sandbox.ways import attack, unconfined


def shell(line: str, policy: Policy, cwd: Path) -> Finished:
    return asyncio.run(run(["/bin/sh", "-c", line], cwd=cwd, policy=policy))


def test_a_file_outside_cannot_be_read(way: str, secret: Path) -> None:
    assert unconfined("read_file", str(secret)) == SECRET
    done = attack(way, "read_file", str(secret))
    assert not done.ok
    assert SECRET.encode() not in done.stdout + done.stderr


@pytest.mark.parametrize("path", ["/etc/shadow", "/proc/1/environ", "/root/.bashrc", "/var/log/dpkg.log"])
def test_the_machine_s_own_files_cannot_be_read(way: str, path: str) -> None:
    assert not attack(way, "read_file", path).ok


def test_the_names_of_the_machine_s_users_are_not_shown(way: str) -> None:
    done = attack(way, "read_file", "/etc/passwd")
    assert not done.ok or len(done.value.splitlines()) <= 2


def test_a_file_outside_cannot_be_written(way: str, tmp_path: Path) -> None:
    for path in (
        tmp_path / "new",
        Path("/usr/new"),
        Path("/etc/new"),
        Path("/new"),
        Path(sys.prefix) / "new",
    ):
        assert not attack(way, "write_file", str(path)).ok
        assert not path.exists()
    assert unconfined("write_file", str(tmp_path / "new")) is True


def test_no_file_that_lends_its_owner_s_rights_can_be_made(way: str, tmp_path: Path) -> None:
    """Another user of the machine could run it and have the rights of the one who runs Ratchet."""
    (tmp_path / "outside").mkdir()
    assert len(unconfined("special_modes", str(tmp_path / "outside"))) > 7
    more = {"scratch": True} if way == "node" else {}
    assert attack(way, "special_modes", "/tmp", **more).value == []


@pytest.mark.parametrize("everything", [False, True])
def test_no_file_that_lends_its_owner_s_rights_is_left_behind(tmp_path: Path, everything: bool) -> None:
    policy = Policy(writable=(tmp_path,), see_system=everything)
    (tmp_path / "deep" / "down").mkdir(parents=True)
    done = attack("command", "special_modes", str(tmp_path / "deep" / "down"), policy=policy)
    assert done.ok
    left = [path.name for path in tmp_path.rglob("*") if path.lstat().st_mode & 0o6000]
    assert left == []
    assert (tmp_path / "deep" / "down" / "chmod").stat().st_mode & 0o777 == 0o755


def test_a_link_to_the_outside_leads_nowhere(way: str, secret: Path) -> None:
    more = {"scratch": True} if way == "node" else {}
    assert not attack(way, "link_away", str(secret), **more).ok


def test_a_link_that_was_laid_before_leads_nowhere(tmp_path: Path, secret: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to(secret)
    (work / "up").symlink_to(tmp_path)
    policy = Policy(writable=(work,))
    assert shell("cat link || cat up/secret || cat ../secret || echo x > link", policy, work).stdout == b""
    assert secret.read_text() == SECRET


def test_the_root_of_another_process_leads_nowhere(way: str, secret: Path) -> None:
    assert unconfined("walk_out", str(secret)) == SECRET
    assert not attack(way, "walk_out", str(secret)).ok


def test_no_disk_can_be_opened(way: str) -> None:
    disks = [path for path in Path("/dev").iterdir() if path.is_block_device()]
    for disk in disks[:2]:
        assert not attack(way, "read_device", str(disk)).ok


def test_no_disk_can_be_opened_by_one_that_sees_everything() -> None:
    disks = [str(path) for path in Path("/dev").iterdir() if path.is_block_device()]
    for disk in [*disks[:2], "/dev/kmsg", "/dev/mem"]:
        assert not attack("command", "read_device", disk, policy=Policy(see_system=True)).ok


@pytest.mark.parametrize("everything", [False, True])
def test_kernel_settings_cannot_be_changed(everything: bool) -> None:
    policy = Policy(see_system=everything)
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory"):
        assert not attack("command", "change_kernel_setting", path, policy=policy).ok


def test_a_command_writes_only_where_it_may(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    for directory in (work, work / ".git", other):
        directory.mkdir()
    (work / ".git" / "config").write_text("ours")
    policy = Policy(readable=(other,), writable=(work,), read_only=(work / ".git",))
    line = f"echo a > file; echo b > .git/config; rm -rf .git; mv .git moved; echo c > {other}/file; cat .git/config"
    assert shell(line, policy, work).stdout == b"ours"
    assert sorted(path.name for path in work.iterdir()) == [".git", "file"]
    assert list(other.iterdir()) == []


def test_the_directory_of_a_command_is_not_writable_by_itself(tmp_path: Path) -> None:
    assert not shell("echo a > file", Policy(readable=(tmp_path,)), tmp_path).ok
    assert list(tmp_path.iterdir()) == []


def test_a_hidden_path_appears_empty(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "one").write_text(SECRET)
    (tmp_path / "token").write_text(SECRET)
    hidden = (tmp_path / "keys", tmp_path / "token", tmp_path / "absent")
    for policy in (
        Policy(writable=(tmp_path,), hidden=hidden),
        Policy(see_system=True, readable=(tmp_path,), hidden=hidden),
    ):
        done = shell("ls keys; cat token keys/one; umount keys; ls keys", policy, tmp_path)
        assert done.stdout == b""


def test_a_protected_path_that_became_a_link_is_refused(tmp_path: Path, secret: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / ".git").symlink_to(secret)
    with pytest.raises(CannotStart, match="symbolic link"):
        shell("true", Policy(writable=(work,), read_only=(work / ".git",)), work)


def test_one_that_sees_everything_still_writes_only_where_it_may(tmp_path: Path, secret: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    policy = Policy(see_system=True, readable=(tmp_path,), writable=(work,))
    line = f"cat {secret}; echo a > file; echo b > {secret}; echo c > /etc/ratchet-test; ls /run"
    assert shell(line, policy, work).stdout.decode() == SECRET
    assert (work / "file").exists()
    assert secret.read_text() == SECRET
    assert not Path("/etc/ratchet-test").exists()


def test_the_temporary_directory_is_private_and_gone_afterwards() -> None:
    mark = f"ratchet-test-{os.getpid()}"
    policy = Policy()
    listed = shell(f"ls /tmp; echo a > /tmp/{mark}; cat /tmp/{mark}", policy, Path("/tmp")).stdout.split()
    assert listed.pop() == b"a"
    # Python itself may lie there.
    assert {f"/tmp/{name.decode()}" for name in listed} <= {str(path) for path in Path(sys.prefix).parents}
    assert not Path(f"/tmp/{mark}").exists()


def test_a_node_writes_only_to_its_own_scratch() -> None:
    assert not attack("node", "write_file", "/tmp/file").ok
    assert attack("node", "write_file", "/tmp/file", scratch=True).value is True
    assert attack("node", "write_file", "file", scratch=True).value is True
    assert not attack("node", "read_file", "/tmp/file", scratch=True).ok


def test_a_node_reads_the_directories_it_is_given(secret: Path) -> None:
    policy = Policy(readable=(secret.parent,))
    assert attack("node", "read_file", str(secret), policy=policy).value == SECRET
    assert not attack("node", "write_file", str(secret), policy=policy).ok
    assert not attack("node", "read_file", str(HOSTILE), policy=policy).ok


def test_a_node_in_a_file_that_is_a_link_is_refused(tmp_path: Path, secret: Path) -> None:
    (tmp_path / "node.py").symlink_to(secret)
    with pytest.raises(Misuse, match="symbolic link"):
        asyncio.run(run(Node(tmp_path / "node.py")))


def test_a_path_that_cannot_be_meant_is_misuse(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="does not exist"):
        shell("true", Policy(writable=(tmp_path / "absent",)), tmp_path)
    for path in (Path("here"), Path("/usr/../etc"), Path("/")):
        with pytest.raises(Misuse, match="a policy"):
            Policy(writable=(path,))
