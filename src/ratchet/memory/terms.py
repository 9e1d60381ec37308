"""The words of a text, as both stores look for them."""

from __future__ import annotations

import re
import unicodedata

# Everything between spaces and the punctuation of ASCII. The underscore stays: it holds an identifier together.
_WORD = re.compile(r"[^\s\x00-\x1f\x7f!-/:-@\[-^`{-~]+")
_PART = re.compile(r"[^\W_]+")
# More words than anybody types; a pasted page is cut here.
MOST_WORDS = 64


def query_words(query: str) -> list[str]:
    """The different words of `query` that hold a letter or a digit."""
    found = {folded(word): word for word in _WORD.findall(query) if _PART.search(word)}
    return list(found.values())[:MOST_WORDS]


def parts(word: str) -> list[str]:
    """The pieces of a word that an index knows: `parse` and `csv` of `parse_csv`."""
    return _PART.findall(folded(word))


def indexed(text: str) -> list[str]:
    """Every term of `text`, once for each time it is there; an identifier counts whole and in pieces."""
    terms = []
    for word in _WORD.findall(text):
        whole = folded(word)
        pieces = parts(word)
        terms += pieces if pieces == [whole] else [*pieces, whole] if pieces else []
    return terms


def folded(word: str) -> str:
    """`word` without case and accents."""
    plain = unicodedata.normalize("NFKD", word.lower())
    return "".join(character for character in plain if not unicodedata.combining(character))
