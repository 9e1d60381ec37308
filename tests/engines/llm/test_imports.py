"""The libraries behind the engine are slow to import, so they wait until they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ratchet.modelserver import ModelServer

HEAVY = ("pydantic_ai", "openai", "anthropic", "httpx2", "mcp", "jsonschema")


def loaded_after(code: str, *arguments: str) -> list[str]:
    script = f"import sys\n{code}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


OPEN = """
from pathlib import Path
from ratchet.config import load_settings
from ratchet.engines.registry import EngineContext, open_engine
home = Path(sys.argv[1])
env = {"RATCHET_LLM__ENDPOINTS__LOCAL__BASE_URL": sys.argv[2], "RATCHET_LLM__ENDPOINTS__LOCAL__KIND": sys.argv[3]}
settings = load_settings({"home": str(home)}, env=env).settings
engine = open_engine("llm:local/scripted", EngineContext(settings, home, {}))
"""


@pytest.mark.soak
def test_opening_the_engine_imports_none_of_them(tmp_path: object) -> None:
    assert loaded_after(OPEN, str(tmp_path), "http://127.0.0.1:9", "openai") == []


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_anthropic_is_imported_only_for_its_protocol(
    tmp_path: object, model_server: ModelServer, kind: str
) -> None:
    from ratchet.modelserver import say

    name = f"imports-{kind}"
    model_server.script(name, [say("hello")])
    url = model_server.anthropic_url(name) if kind == "anthropic" else model_server.openai_url(name)
    use = "import asyncio\nfrom ratchet.engines import Request\nasyncio.run(engine.propose(Request('hi')))"
    assert ("anthropic" in loaded_after(OPEN + use, str(tmp_path), url, kind)) == (kind == "anthropic")
