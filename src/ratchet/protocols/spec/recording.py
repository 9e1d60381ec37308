"""A spec in the ledger: the spec itself, its hash, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ratchet.kernel import iso
from ratchet.ledger import Transaction
from ratchet.ledger.protocols import Protocol, change_protocol, get_protocol
from ratchet.protocols.spec.hashing import spec_hash
from ratchet.protocols.spec.paths import Exists
from ratchet.protocols.spec.reading import read_leniently
from ratchet.protocols.spec.step_spec import ProtocolSpec
from ratchet.protocols.spec.validation import check_paths
from ratchet.protocols.spec.writing import write_protocol_spec

VALID, INVALID, MISSING = "valid", "invalid", "missing"
_NO_SPEC = "the protocol has no spec"


def root_of(protocol: Protocol) -> str:
    """The folder of a protocol in its repository."""
    return protocol.root


def spec_problems(spec: ProtocolSpec | Any, *, root: str = "", exists: Exists | None = None) -> list[str]:
    """One sentence for each problem of a spec, as a value or as JSON. With `exists` its files are looked for too."""
    data = write_protocol_spec(spec) if isinstance(spec, ProtocolSpec) else spec
    read, problems = read_leniently(data, root=root)
    if read is not None and exists is not None:
        problems = [*problems, *check_paths(read, exists, root=root)]
    return problems


def record_spec(
    tx: Transaction, run_id: int, spec: ProtocolSpec | Mapping[str, Any], *, exists: Exists | None = None
) -> list[str]:
    """Keep a protocol's spec, also one that is invalid, with what is wrong with it. What that is.

    Neither steps nor statuses change. Raises `NotFound`.
    """
    protocol = get_protocol(tx, run_id)
    data = write_protocol_spec(spec) if isinstance(spec, ProtocolSpec) else dict(spec)
    problems = spec_problems(data, root=root_of(protocol), exists=exists)
    number = spec_hash(data)
    change_protocol(tx, run_id, spec=data, spec_hash=number)
    _judge(tx, protocol, INVALID if problems else VALID, problems, {"protocol_spec": data})
    tx.event(
        "spec_validation_error" if problems else "spec_validated",
        run_id=run_id,
        project_id=protocol.project_id,
        message="; ".join(problems[:3]) if problems else f"{len(data['steps'])} steps",
        data={"spec_hash": number, "errors": problems},
    )
    return problems


def judge_spec(tx: Transaction, protocol: Protocol, problems: Sequence[str]) -> None:
    """Write down what an audit found of the spec that a protocol has, or that it has none."""
    if protocol.spec is None:
        _judge(tx, protocol, MISSING, [_NO_SPEC, *problems], {})
    else:
        _judge(tx, protocol, INVALID if problems else VALID, problems, {})


def _judge(
    tx: Transaction, protocol: Protocol, status: str, problems: Sequence[str], more: Mapping[str, Any]
) -> None:
    before = protocol.template_config if isinstance(protocol.template_config, dict) else {}
    told = {"status": status, "errors": list(problems), "validated_at": iso(tx.now)}
    change_protocol(
        tx,
        protocol.run_id,
        spec_status=status,
        spec_errors=list(problems),
        spec_validated_at=tx.now,
        template_config={**before, **more, "spec_meta": told},
    )
