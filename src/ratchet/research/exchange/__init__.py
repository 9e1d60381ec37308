"""Import and export of the state directory that the original research system keeps."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.exchange._replay import Mismatch, Replay, replay
    from ratchet.research.exchange.exporting import export_run
    from ratchet.research.exchange.importing import ImportedRun, ImportReport, import_run
    from ratchet.research.exchange.layout import Layout
    from ratchet.research.exchange.remarks import Remark, RemarkKind
    from ratchet.research.exchange.rows import Row
    from ratchet.research.exchange.state import Imported, read_state
else:
    __getattr__ = on_demand(__name__)

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
