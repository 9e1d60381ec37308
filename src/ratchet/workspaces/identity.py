"""Who made a commit, and the bytes of one."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ratchet.kernel import Misuse


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    email: str

    def __post_init__(self) -> None:
        for value in (self.name, self.email):
            if (
                not value.strip()
                or any(character in value for character in "<>\n\0")
                or not value.isprintable()
            ):
                raise Misuse(f"{value!r} cannot stand in a commit", hint="give a plain name and address")

    def line(self, at: int) -> bytes:
        return f"{self.name.strip()} <{self.email.strip()}> {at} +0000".encode()


RATCHET = Identity("Ratchet", "ratchet@localhost")


def commit_content(
    tree: str, parents: list[str], message: str, *, author: Identity | None = None, at: int | None = None
) -> bytes:
    """A commit object. The same arguments, time included, give the same bytes."""
    moment = int(time.time()) if at is None else at
    lines = [
        f"tree {tree}".encode(),
        *(f"parent {parent}".encode() for parent in parents),
        b"author " + (author or RATCHET).line(moment),
        b"committer " + RATCHET.line(moment),
        b"",
        # A message comes from outside; what a commit cannot hold is replaced rather than losing the work over it.
        message.replace("\0", "\N{REPLACEMENT CHARACTER}").rstrip().encode(errors="replace") + b"\n",
    ]
    return b"\n".join(lines)
