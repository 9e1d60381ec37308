"""Workflows as folders that run where there is no Ratchet."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.exports.exporter import Exported, export_workflow
    from ratchet.workflows.exports.tools import NotExportable, Target, read_target
else:
    __getattr__ = on_demand(__name__)
