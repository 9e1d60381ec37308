"""An engine without a model: it searches over the constants and choices that a program declares."""

from ratchet.engines.search.declaration import BadDeclaration
from ratchet.engines.search.engine import SearchEngine, open_search

__all__ = ["BadDeclaration", "SearchEngine", "open_search"]
