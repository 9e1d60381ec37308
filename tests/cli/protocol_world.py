"""A repository with a real bare remote, and agents that are small programs, for calling `ratchet` on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.protocols.world import encode_plan, git, make_remote, write_agents


@dataclass(frozen=True)
class Shop:
    """`place` is a clone of `remote`, as somebody works in it."""

    place: Path
    remote: Path

    def git(self, *words: str) -> str:
        """What git says about the remote."""
        return git(self.remote, *words)


def make_shop(directory: Path, home: Path) -> Shop:
    home.mkdir(exist_ok=True)
    write_agents(home)
    remote = make_remote(directory)
    git(directory, "clone", "-q", str(remote), "shop")
    return Shop(directory / "shop", remote)


def wish(*steps: str, **of_each: Any) -> str:
    """A description from which the planner takes a plan with a file for each step."""
    files = [
        {"filename": f"{number:02d}-{chr(97 + number) if number else 'setup'}.md", "content": text, **of_each}
        for number, text in enumerate(steps)
    ]
    return f"Change the shop.\nPLAN={encode_plan(files)}"
