"""How large a tree may be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one tree. Bytes count what is read or written, so unchanged files of a base are free.

    `outward_links` lets symbolic links lead out of the workspace, for repositories that need them.
    """

    file_bytes: int = 64 * 1024 * 1024
    total_bytes: int = 1024 * 1024 * 1024
    files: int = 200_000
    depth: int = 100
    outward_links: bool = False
