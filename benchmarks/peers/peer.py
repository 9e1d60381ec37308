"""What is known about a peer before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class Unavailable(Exception):
    """A peer could not be installed or did not do its work; says why in one line."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run: an empty directory for its files, where its model listens, how much it does, and on what.

    `scoring` is the source of `score(program_path)`; without it the problem is that of `toy`.
    """

    directory: Path
    model_url: str
    iterations: int
    # One byte for each candidate that was evaluated.
    tally: Path
    program: str = ""
    scoring: str = ""
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    title: str
    # What the package index calls it.
    requirement: str
    # Writes the files of a run and returns the program of the environment to start, with its arguments.
    prepare: Callable[[Wanted], list[str]]
