"""How entries about workflows are filed."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_TAGS = 50
_LONGEST_TAG = 200


def scope_of(workflow: str) -> str:
    """The scope of all that belongs to one workflow, and goes with it."""
    return f"workflow:{workflow}"


def tags_of(tags: Iterable[str]) -> frozenset[str]:
    """As many of these tags as an entry can have; a tag that is blank or too long is none."""
    fit = [tag for tag in dict.fromkeys(tags) if tag.strip() and len(tag) <= _LONGEST_TAG]
    return frozenset(fit[:_MOST_TAGS])
