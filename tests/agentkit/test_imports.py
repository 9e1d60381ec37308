"""An agent's state costs little to import."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
import ratchet.agentkit
heavy = ["mcp", "sqlalchemy", "pydantic", "anyio", "asyncio", "uvicorn", "jsonschema"]
assert not [name for name in heavy if name in sys.modules], "on import"
from ratchet.agentkit import Runner, StateStore
runner = Runner("x")
@runner.tool
def tool() -> str: ...
store = StateStore(Path(sys.argv[1]))
store.begin({"a": 1})
with store.edit() as state:
    state["a"] = 2
assert not [name for name in heavy if name in sys.modules and name != "jsonschema"], "on edit"
ours = [name for name in sys.modules if name.startswith("ratchet.") and not name.startswith("ratchet.agentkit")]
assert not ours, ours
"""


def test_to_edit_a_state_imports_neither_mcp_nor_anything_else_of_ratchet(tmp_path: Path) -> None:
    (tmp_path / "state_schema.json").write_text("{}")
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there() -> None:
    import ratchet.agentkit as kit

    assert [name for name in kit.__all__ if getattr(kit, name, None) is None] == []
