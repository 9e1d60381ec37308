"""Adding a step to a protocol by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.kernel import Conflict, RunStatus, StepId
from ratchet.ledger import Transaction
from ratchet.ledger.protocol_steps import add_protocol_steps, list_protocol_steps
from ratchet.ledger.protocols import get_protocol
from ratchet.protocols.spec import QaPolicy, read_protocol_spec, record_spec, root_of, step_rows


def add_step(
    tx: Transaction,
    run_id: int,
    *,
    name: str,
    step_index: int,
    step_type: str,
    engine_id: str | None = None,
    model: str | None = None,
    policies: Sequence[Mapping[str, Any]] = (),
    summary: str | None = None,
    depends_on: Sequence[str] = (),
) -> StepId:
    """A pending step that is carried out as `NAME.md` in the protocol's folder says. The spec is the one with it.

    Raises `SpecInvalid` when the protocol cannot have such a step, and `Conflict` when its name or place is taken, or
    when the protocol is being planned or has ended.
    """
    protocol = get_protocol(tx, run_id)
    if protocol.status.final or protocol.status is RunStatus.PLANNING:
        raise Conflict(f"protocol {run_id} is {protocol.status}; no steps can be added to it now")
    there = list_protocol_steps(tx, run_id)
    if any(step.name == name for step in there):
        raise Conflict(f"protocol {run_id} has a step {name!r} already", hint="take another name")
    step = {
        "id": name,
        "name": name,
        "engine_id": engine_id,
        "prompt_ref": f"{name}.md",
        "qa": {"policy": QaPolicy.FULL},
        "step_type": step_type,
        **({} if model is None else {"model": model}),
        **({"policies": list(policies)} if policies else {}),
        **({"depends_on": list(depends_on)} if depends_on else {}),
    }
    written = [each.spec for each in there if each.spec]
    place = sum(each.step_index < step_index for each in there if each.spec)
    spec = read_protocol_spec(
        {**(protocol.spec or {}), "steps": [*written[:place], step, *written[place:]]}, root=root_of(protocol)
    )
    row = next(row for row in step_rows(spec) if row["name"] == name)
    [step_id] = add_protocol_steps(tx, run_id, [{**row, "step_index": step_index, "summary": summary}])
    record_spec(tx, run_id, spec)
    return step_id
