"""Looking at the processes of this machine."""

from __future__ import annotations

from pathlib import Path


def command_lines() -> dict[int, str]:
    """The command lines of every process that can be seen."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                found[int(entry.name)] = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:  # it has just ended
                continue
    return found


def with_word(word: str) -> dict[int, str]:
    return {pid: line for pid, line in command_lines().items() if word in line}
