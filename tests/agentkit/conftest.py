"""A state in a directory of its own."""

import json
from pathlib import Path

import pytest

from ratchet.agentkit import StateStore

SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 0},
        "notes": {"type": "array", "items": {"type": "string"}},
    },
}


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    """A state that has begun as `{"count": 0}`."""
    (tmp_path / "state_schema.json").write_text(json.dumps(SCHEMA))
    store = StateStore(tmp_path)
    store.begin({"count": 0}, by="test")
    return store
