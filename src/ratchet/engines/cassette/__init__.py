"""Cassettes: files that hold sessions, so that they can be made again without a model."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.engines.cassette.asked import answers, describe, difference, is_excerpt
    from ratchet.engines.cassette.changes import Change, Entry, changes_since, digest, look, remake
    from ratchet.engines.cassette.file import (
        Cassette,
        CassetteError,
        Header,
        Recorded,
        add,
        read,
        read_header,
    )
    from ratchet.engines.cassette.placeholder import Placeholder
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Cassette",
    "CassetteError",
    "Change",
    "Entry",
    "Header",
    "Placeholder",
    "Recorded",
    "add",
    "answers",
    "changes_since",
    "describe",
    "difference",
    "digest",
    "is_excerpt",
    "look",
    "read",
    "read_header",
    "remake",
]
