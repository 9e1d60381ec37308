"""Workflows as folders that run where there is no Ratchet."""

from ratchet.workflows.exports.exporting import Exported, export_workflow
from ratchet.workflows.exports.refusal import NotExportable
from ratchet.workflows.exports.target import Target, read_target

__all__ = ["Exported", "NotExportable", "Target", "export_workflow", "read_target"]
