"""Values of steps as the ledger keeps them: small ones in the row, large ones in the artifact store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ratchet.ledger import ArtifactStore, Transaction, to_json

INLINE_BYTES = 64 * 1024


def keep_value(
    tx: Transaction, artifacts: ArtifactStore, value: Any, *, run_id: int, name: str
) -> dict[str, Any]:
    """What stands for `value` in a row."""
    text = to_json(value)
    if len(text) <= INLINE_BYTES:
        return {"value": value}
    kept = artifacts.put(tx, text.encode(), name=f"{name}.json", media_type="application/json", run_id=run_id)
    return {"artifact": kept.sha256, "bytes": kept.size}


def read_value(artifacts: ArtifactStore, kept: Mapping[str, Any]) -> Any:
    """The value that `keep_value` has put away."""
    if "artifact" not in kept:
        return kept.get("value")
    return json.loads(artifacts.read(kept["artifact"]))
