"""A run as a self-contained HTML file."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.views._report.page import report
else:
    __getattr__ = on_demand(__name__)

__all__ = ["report"]
