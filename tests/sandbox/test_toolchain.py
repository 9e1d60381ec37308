"""What an agent program sees of the machine: the system, the tools on its PATH, and what it is given."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from ratchet.sandbox import Finished, Policy, run
from ratchet.sandbox.toolchain import closed_settings, named_places, program_places, tool_places


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with tools and secrets beside each other."""
    home = tmp_path / "user"
    secrets = (
        ".cargo/credentials.toml",
        ".m2/settings.xml",
        ".config/tool/token",
        ".local/share/keyrings/login",
    )
    for name in (*secrets, ".ssh/id_ed25519", "notes/diary.txt"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("secret")
    program(home / ".cargo" / "bin" / "cargo", "cargo")
    program(home / "node" / "bin" / "npm", "$(cat $(dirname $0)/../lib/version)")
    (home / "node" / "lib").mkdir()
    (home / "node" / "lib" / "version").write_text("npm")
    program(home / ".local" / "share" / "tools" / "bin" / "ruff", "ruff")
    (home / ".local" / "share" / "tools" / "pyvenv.cfg").touch()
    (home / ".local" / "bin").mkdir(parents=True)
    (home / ".local" / "bin" / "ruff").symlink_to(home / ".local" / "share" / "tools" / "bin" / "ruff")
    monkeypatch.setenv("HOME", str(home))
    return home


def path_of(home: Path) -> str:
    places = (home / ".cargo" / "bin", home / "node" / "bin", home / ".local" / "bin", "/usr/bin", "/bin")
    return os.pathsep.join(map(str, places))


def shell(line: str, policy: Policy) -> Finished:
    return asyncio.run(run(["/bin/sh", "-c", line], cwd=Path("/"), policy=policy))


def test_tools_on_the_path_work_and_nothing_else_of_the_home_is_there(home: Path) -> None:
    policy = Policy(see_system=True, environment={"PATH": path_of(home)})
    done = shell("cargo; npm; ruff", policy)
    assert done.stdout.decode().split() == ["cargo", "npm", "ruff"], done.stderr
    found = shell(f"grep -rl secret {home}; cat {home}/.config/tool/token", policy)
    assert found.stdout == b""
    assert shell(f"ls -a {home}", policy).stdout.split() == [b".", b"..", b".cargo", b".local", b"node"]


def test_what_is_named_is_added(home: Path) -> None:
    policy = Policy(see_system=True, readable=(home / "notes",), environment={"PATH": path_of(home)})
    assert shell(f"cat {home}/notes/diary.txt", policy).stdout == b"secret"


def test_of_etc_it_sees_what_every_user_may_read() -> None:
    policy = Policy(see_system=True)
    assert shell("cat /etc/passwd", policy).stdout == Path("/etc/passwd").read_bytes()
    closed = {f"{top}/{rest}" for top, rest in closed_settings()}
    assert "/etc/shadow" in closed
    done = shell(f"for each in {' '.join(sorted(closed))}; do cat $each; ls $each/*; done; echo end", policy)
    assert done.stdout.decode().split() == ["end"]


@pytest.mark.parametrize("place", ["/srv", "/mnt", "/media", "/var/log", "/sys/kernel", "/boot"])
def test_no_other_place_of_the_machine_is_there(place: str) -> None:
    assert shell(f"ls -A {place}", Policy(see_system=True)).stdout == b""


def test_a_link_to_a_tool_leads_there_by_its_own_name(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home / "node")
    policy = Policy(see_system=True, environment={"PATH": f"{tmp_path}/link/bin:/usr/bin:/bin"})
    assert shell(f"npm; {tmp_path}/link/bin/npm", policy).stdout.split() == [b"npm", b"npm"]


def test_what_is_protected_is_protected_by_every_name(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (tmp_path / "link").symlink_to(work)
    policy = Policy(see_system=True, writable=(tmp_path / "link",), read_only=(tmp_path / "link" / ".git",))
    shell(
        f"echo a > {tmp_path}/link/.git/config; echo a > {work}/.git/config; echo a > {tmp_path}/link/new",
        policy,
    )
    assert sorted(path.name for path in work.rglob("*")) == [".git", "new"]


def test_no_home_and_nothing_around_one_is_a_tool(home: Path) -> None:
    script = program(home / "script", "x")
    assert tool_places(f"{home}:{home.parent}:/:/usr/bin:relative:/absent") == ()
    assert program_places(script) == (script,)
    assert named_places(["sh", "/", str(home / "notes"), str(home / ".m2" / ".." / "x")]) == (home / "notes",)


def test_a_program_outside_of_homes_is_shown_with_all_that_was_installed_with_it(
    home: Path, tmp_path: Path
) -> None:
    installed = program(tmp_path / "product" / "bin" / "tool", "tool")
    assert program_places(installed) == (installed.parent, tmp_path / "product")
