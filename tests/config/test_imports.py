from __future__ import annotations

import subprocess
import sys

HEAVY = ("sqlalchemy", "fastapi", "alembic", "pydantic_settings", "structlog", "asyncio", "difflib")


def test_loading_settings_imports_nothing_heavy(tmp_path: object) -> None:
    script = (
        "import sys; from pathlib import Path; from ratchet.config import load_settings; "
        f"load_settings(env={{}}, cwd=Path({str(tmp_path)!r})); "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
