"""Import and export of the state directory that the original research system keeps."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.exchange.exporter import export_run
    from ratchet.research.exchange.importer import import_run
    from ratchet.research.exchange.rows import RemarkKind
    from ratchet.research.exchange.state import ImportedState, read_state, replay
else:
    __getattr__ = on_demand(__name__)
