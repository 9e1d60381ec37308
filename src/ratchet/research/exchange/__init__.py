"""Import and export of the state directory that the original research system keeps."""

from ratchet.research.exchange.exporting import export_run
from ratchet.research.exchange.importing import ImportedRun, ImportReport, import_run
from ratchet.research.exchange.layout import Layout
from ratchet.research.exchange.remarks import Remark, RemarkKind
from ratchet.research.exchange.replay import Mismatch, Replay, replay
from ratchet.research.exchange.rows import Row
from ratchet.research.exchange.state import Imported, read_state

__all__ = [
    "ImportReport",
    "Imported",
    "ImportedRun",
    "Layout",
    "Mismatch",
    "Remark",
    "RemarkKind",
    "Replay",
    "Row",
    "export_run",
    "import_run",
    "read_state",
    "replay",
]
