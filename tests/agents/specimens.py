"""Tiny agents for tests: a greeter, and greeters with something wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

Broken = Literal["hangs", "wrong_port", "syntax", "exits", "crashes_on_call", "failing_tests"]

TOOLS = {
    "greet": '''
@runner.tool
def greet(name: str) -> str:
    """Greet somebody."""
    with state.edit() as known:
        known["greeted"] += 1
    return greeting_for(name)
''',
    "count": '''
@runner.tool
def count() -> int:
    """How often somebody was greeted."""
    return state.read()["greeted"]
''',
    "shout": '''
@runner.tool
def shout(name: str) -> str:
    """Greet somebody loudly."""
    return greeting_for(name).upper()
''',
    "crash": '''
@runner.tool
def crash() -> str:
    """End the server without a word."""
    os._exit(7)
''',
    "slow": '''
@runner.tool
def slow(seconds: float) -> float:
    """Answer late."""
    time.sleep(seconds)
    return seconds
''',
}
"""The tools that a specimen's Runner can be given, by name."""

_RUNNER = '''"""The Runner of a greeter."""

import os
import time

from ratchet.agentkit import Runner, state
from words import greeting_for

runner = Runner("greeter")
{tools}

if __name__ == "__main__":
    runner.run()
'''

_TUNER = '''"""The Tuner of a greeter."""

from ratchet.agentkit import Tuner, send_to_architect, state

tuner = Tuner("greeter")


@tuner.tool
def feedback(text: str, rating: int) -> str:
    """Take an opinion about a greeting, from 1 (bad) to 5 (good)."""
    with state.edit() as known:
        known["lessons"].append(text)
    if rating > 1:
        return "noted"
    return f"sent as {send_to_architect(text, severity='high')}"


if __name__ == "__main__":
    tuner.run()
'''

_WORDS = '''"""What a greeter says."""

GREETING = {greeting!r}


def greeting_for(name):
    return f"{{GREETING}}, {{name}}"
'''

_TESTS = """from words import GREETING, greeting_for


def test_it_greets_by_name():
    assert greeting_for("Ada") == f"{GREETING}, Ada"
"""

_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "greeted": {"type": "integer", "minimum": 0},
        "lessons": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["greeted", "lessons"],
    "additionalProperties": False,
}
STATE = {"greeted": 0, "lessons": []}

_STARTS_BADLY = {
    "hangs": "import time\n\nprint('waiting for nothing')\nwhile True:\n    time.sleep(1)\n",
    "wrong_port": (
        "from http.server import HTTPServer, SimpleHTTPRequestHandler\n\n"
        "HTTPServer(('127.0.0.1', 0), SimpleHTTPRequestHandler).serve_forever()\n"
    ),
    "syntax": "def greet(:\n",
    "exits": "import sys\n\nsys.exit('there is nobody to greet')\n",
}


def write_agent(
    directory: Path,
    *,
    version: str = "0.0.0",
    greeting: str = "hello",
    tools: Sequence[str] = ("greet", "count"),
    broken: Broken | None = None,
) -> Path:
    """Write a greeter into `directory`, which is made if it is missing. `tools` are names of `TOOLS`."""
    for name, text in files(version=version, greeting=greeting, tools=tools, broken=broken).items():
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def files(
    *,
    version: str = "0.0.0",
    greeting: str = "hello",
    tools: Sequence[str] = ("greet", "count"),
    broken: Broken | None = None,
) -> dict[str, str]:
    """The files of a greeter: all that is tracked, and its first state."""
    sources = "".join("\n" + TOOLS[name] for name in tools).rstrip() + "\n"
    runner = _RUNNER.format(tools=sources)
    if broken == "crashes_on_call":
        runner = runner.replace("    return greeting_for(name)", "    os._exit(7)")
    tests = _TESTS.replace("== f", "!= f") if broken == "failing_tests" else _TESTS
    canary: list[dict[str, Any]] = (
        [{"tool": "greet", "arguments": {"name": "Ada"}, "expect": {"contains": "Ada"}}]
        if "greet" in tools
        else []
    )
    return {
        "runner.py": _STARTS_BADLY.get(broken or "", runner),
        "tuner.py": _TUNER,
        "words.py": _WORDS.format(greeting=greeting),
        "tests.py": tests,
        "state_schema.json": _json(_SCHEMA),
        "state.json": _json(STATE),
        "metadata.json": _json({"version": version}),
        "canary.json": _json(canary),
        "README.md": f"# greeter\n\nGreets people with {greeting!r} and counts how often.\n",
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
