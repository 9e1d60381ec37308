"""A run as a self-contained HTML file."""

from ratchet.research.views.report.page import report

__all__ = ["report"]
