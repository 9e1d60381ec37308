"""An engine without a model: it searches over the constants and choices that a program declares."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.engines.search.engine import SearchEngine, open_search
    from ratchet.engines.search.program import BadDeclaration
else:
    __getattr__ = on_demand(__name__)
