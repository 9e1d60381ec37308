"""Short names for exact contents: the same spec or prompt has the same one wherever it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ratchet.protocols.spec.step_spec import ProtocolSpec
from ratchet.protocols.spec.writing import write_protocol_spec

MISSING = "missing"
_DIGITS = 12


def spec_hash(spec: ProtocolSpec | Mapping[str, Any]) -> str:
    """Twelve digits for a spec. The order of keys and the spaces between them do not count."""
    data = write_protocol_spec(spec) if isinstance(spec, ProtocolSpec) else spec
    return _short(json.dumps(data, sort_keys=True, separators=(",", ":")).encode())


def prompt_version(content: bytes | None) -> str:
    """Twelve digits for a prompt, or `missing` without one."""
    return MISSING if content is None else _short(content)


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
