"""Filling in the words of a description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ratchet.config.command_settings import placeholders_in


def filled(words: Sequence[str], values: Mapping[str, str | None]) -> list[str]:
    """The words with their placeholders filled in, without those that have a placeholder with no value."""
    return [
        word.format_map(values)
        for word in words
        if all(values.get(name) is not None for name in placeholders_in(word))
    ]


def mentions(words: Sequence[str], *names: str) -> bool:
    return any(name in names for word in words for name in placeholders_in(word))
