"""The numbers of versions: major.minor.patch, and by how much a change moves them."""

from __future__ import annotations

import functools
import re
from enum import Enum
from typing import NamedTuple

from ratchet.kernel.errors import Misuse

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_SEMVER = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}", re.ASCII)


@functools.total_ordering
class Bump(Enum):
    """How much a version changed for those who call it. `max` of two is the greater change."""

    PATCH = "patch"
    MINOR = "minor"
    MAJOR = "major"

    def __lt__(self, other: Bump) -> bool:
        order = list(Bump)
        return order.index(self) < order.index(other)

    def __str__(self) -> str:
        return self.value


class Semver(NamedTuple):
    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def is_semver(text: str) -> bool:
    return _SEMVER.fullmatch(text) is not None


def parse(text: str) -> Semver:
    """The three numbers of `0.1.0`. Raises `Misuse` for anything else: what follows the numbers has no use here."""
    found = _SEMVER.fullmatch(text)
    if found is None:
        raise Misuse(f"{text[:80]!r} is not a version", hint="a version is three numbers, such as 0.1.0")
    return Semver(*map(int, found.groups()))


def bumped(version: str, bump: Bump) -> str:
    """The version after `version`. Raises `Misuse` if that is none."""
    major, minor, patch = parse(version)
    following = {
        Bump.PATCH: Semver(major, minor, patch + 1),
        Bump.MINOR: Semver(major, minor + 1, 0),
        Bump.MAJOR: Semver(major + 1, 0, 0),
    }
    return str(following[bump])
