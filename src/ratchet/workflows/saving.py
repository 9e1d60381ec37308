"""Keeping a workflow under its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ratchet.flowkit.spec import WorkflowSpec
from ratchet.flowkit.validation import check_spec
from ratchet.flowkit.writer import write_spec
from ratchet.ledger import Transaction
from ratchet.ledger.workflows import SavedWorkflow, save_workflow
from ratchet.workflows.running.preparing import BadWorkflow


def keep_workflow(
    tx: Transaction, spec: WorkflowSpec, *, origin: str, name: str | None = None
) -> SavedWorkflow:
    """Save a workflow, under another `name` if one is given. Raises `BadWorkflow` for one that could not run.

    A saved workflow has no folder, so nothing in it may lead to a file.
    """
    renamed = spec if name is None else replace(spec, workflow_id=name)
    problems = [*check_spec(renamed), *_files(renamed)]
    if problems:
        raise BadWorkflow(problems)
    return save_workflow(tx, write_spec(renamed), origin=origin)


def _files(spec: WorkflowSpec) -> Iterator[str]:
    for step in spec.steps:
        if step.workflow_spec is not None:
            yield from _files(step.workflow_spec)
        if step.tool_path is not None:
            yield (
                f"step {step.step_id}: {step.tool_path} is a file beside the workflow, which a saved one does not "
                "have; put its code under `tools`"
            )
        if (step.workflow_path or "").endswith((".json", ".yaml", ".yml")):
            yield (
                f"step {step.step_id}: {step.workflow_path} is a file beside the workflow, which a saved one does "
                "not have; save it, and name it"
            )
