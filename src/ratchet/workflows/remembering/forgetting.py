"""Deleting a workflow: what is deleted is gone from the memory as well."""

from __future__ import annotations

import contextlib

from ratchet.ledger.workflows import get_workflow, remove_workflow
from ratchet.memory import Memory, open_memory
from ratchet.runtime import Runtime
from ratchet.workflows.remembering.places import scope_of


def forget_workflow(memory: Memory, name: str) -> int:
    """Forget every plan, failure, fix and lesson of a workflow, and say how many."""
    return memory.delete(scope=scope_of(name))


def delete_workflow(
    runtime: Runtime, name: str, *, actor: str = "ratchet", request_id: str | None = None
) -> int:
    """Delete a saved workflow with all that is remembered of it; how many entries that were. Raises `NotFound`.

    The memory comes first: a process that dies in between leaves a workflow that can be deleted again, but never the
    memory of one that is gone.
    """
    with runtime.ledger.read() as tx:
        get_workflow(tx, name)
    with contextlib.closing(open_memory(runtime.settings.memory, runtime.home)) as memory:
        forgotten = forget_workflow(memory, name)
    with runtime.ledger.write(actor=actor, request_id=request_id) as tx:
        remove_workflow(tx, name)
    return forgotten
