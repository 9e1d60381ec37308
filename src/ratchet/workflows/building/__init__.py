"""Making workflows: out of files, of JSON, and of what a model answered."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.workflows.building.errors import BadPlan, UnreadableWorkflow
    from ratchet.workflows.building.files import read_data, read_file
    from ratchet.workflows.building.operations import infer_operation_type
    from ratchet.workflows.building.parsing import build_from_data, build_from_json, build_from_text
    from ratchet.workflows.building.simple import create_simple_workflow
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "BadPlan",
    "UnreadableWorkflow",
    "build_from_data",
    "build_from_json",
    "build_from_text",
    "create_simple_workflow",
    "infer_operation_type",
    "read_data",
    "read_file",
]
