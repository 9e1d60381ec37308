"""Specs as JSON. Reading what was written gives the same spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ratchet.protocols.spec.paths import plain_path
from ratchet.protocols.spec.step_spec import Outputs, ProtocolSpec, Qa, StepSpec

_NEEDED = {StepSpec: ("id", "engine_id", "prompt_ref", "qa"), Qa: ("policy",)}


def write_protocol_spec(spec: ProtocolSpec) -> dict[str, Any]:
    """The spec as the schema wants it; what was not said is left out."""
    return {**_written(spec), "steps": [write_step_spec(step) for step in spec.steps]}


def write_step_spec(step: StepSpec) -> dict[str, Any]:
    """Paths are written without parts that say nothing, so that they name files of a commit as they are."""
    written = {**_written(step), "prompt_ref": plain_path(step.prompt_ref), "qa": _written(step.qa)}
    if step.qa.prompt is not None:
        written["qa"]["prompt"] = plain_path(step.qa.prompt)
    return written


def _outputs(outputs: Outputs) -> dict[str, Any]:
    aux = {name: plain_path(path) for name, path in outputs.aux.items()}
    protocol = {} if outputs.protocol is None else {"protocol": plain_path(outputs.protocol)}
    return {**protocol, **({"aux": aux} if aux else {})}


def _written(value: ProtocolSpec | StepSpec | Qa) -> dict[str, Any]:
    needed = _NEEDED.get(type(value), ())
    named = {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return {name: given for name, given in named.items() if name in needed or given not in (None, {}, [])}


def _plain(value: Any) -> Any:
    """Free tables are JSON already, however deep they are."""
    if isinstance(value, Outputs):
        return _outputs(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, str) else value
