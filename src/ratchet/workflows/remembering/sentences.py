"""Comparing two sentences by their words, where their meaning alone says too little."""

from __future__ import annotations

import hashlib
import re

from ratchet.memory.terms import folded, query_words

# A figure, what stands in quotes, or a word that begins with a capital letter.
_QUOTED = re.compile(r"\"([^\"]{1,200})\"|“([^”]{1,200})”|`([^`]{1,200})`|(?<!\w)'([^']{1,200})'(?!\w)")
_FIGURE = re.compile(r"\d+(?:[.,:]\d+)*")
_NAME = re.compile(r"[^\W\d_]\w*")
_BEGINNING = re.compile(r"(?:^|[.!?:;]\s+)[^\w]*\w+")


def plain(sentence: str) -> str:
    """The sentence with single spaces."""
    return " ".join(sentence.split())


def mark_of(sentence: str) -> str:
    """The same for the same sentence, however it is spaced."""
    return hashlib.sha256(plain(sentence).encode("utf-8", "replace")).hexdigest()


def particulars(sentence: str) -> frozenset[str]:
    """Figures, quoted texts and names: by these, sentences that mean nearly the same may ask for something else.

    A word at the beginning of a sentence is no name: it has its capital letter for another reason.
    """
    text = plain(sentence)
    quoted = {next(part for part in found if part) for found in _QUOTED.findall(text)}
    figures = set(_FIGURE.findall(text))
    inner = _BEGINNING.sub(" ", text)
    names = {word for word in _NAME.findall(inner) if word[0].isupper()}
    return frozenset(folded(each) for each in quoted | figures | names)


def differ_in(one: str, other: str) -> str | None:
    """A particular of one sentence that the other does not have."""
    for here, there in ((one, other), (other, one)):
        text = folded(plain(there))
        for each in sorted(particulars(here)):
            if re.search(rf"(?<!\w){re.escape(each)}(?!\w)", text) is None:
                return each
    return None


def shared_words(one: str, other: str) -> float:
    """How many of their words two sentences share, from 0 to 1 (Jaccard)."""
    here, there = ({folded(word) for word in query_words(each)} for each in (one, other))
    return len(here & there) / len(here | there) if here | there else 0.0
