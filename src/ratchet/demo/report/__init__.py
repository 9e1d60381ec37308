"""The demo as one HTML page that needs nothing else: no network, no script, no file beside it."""

from ratchet.demo.report.page import page, write_report

__all__ = ["page", "write_report"]
