"""The real Codex CLI, which brings a sandbox of its own, inside ours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import codex_cli_bin

from ratchet.sandbox import Bounds, Finished, Policy, run


def codex(tmp_path: Path, *command: str) -> Finished:
    home, work = tmp_path / "home", tmp_path / "work"
    (home / "tmp").mkdir(parents=True)
    (work / ".git").mkdir(parents=True)
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "CODEX_HOME": str(home),
        "TMPDIR": str(home / "tmp"),
    }
    policy = Policy(network=True, see_system=True, writable=(home, work), environment=environment)
    argv = [str(codex_cli_bin.bundled_codex_path()), "sandbox", "-c", 'sandbox_mode="workspace-write"', "--"]
    return asyncio.run(run([*argv, *command], cwd=work, policy=policy, bounds=Bounds(memory_bytes=4 << 30)))


def test_codex_puts_its_own_sandbox_inside_ours(tmp_path: Path) -> None:
    done = codex(tmp_path, "true")
    assert done.ok, done.stderr


def test_both_sandboxes_hold(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    line = f"echo a > file; echo b > {outside}; echo c > .git/config"
    codex(tmp_path, "sh", "-c", line)
    assert (tmp_path / "work" / "file").read_text() == "a\n"
    assert not outside.exists()
    assert not (tmp_path / "work" / ".git" / "config").exists()
