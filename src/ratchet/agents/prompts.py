"""What the Architect's engine is told, and in which form it answers.

Nothing in it differs from one run of the same work to the next, such as a path, a commit or a time: a recorded session
then answers the same question again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ratchet.agents.contract import LOGS
from ratchet.config.agent_settings import Agents

MESSAGE_FILE = "message.txt"
"""In the logs: the whole of a text that is too long for the prompt."""

_SUMMARY = {"type": "string", "description": "what you did and why, in a sentence or two for people"}
_REFUSED = {"type": ["string", "null"], "description": "why this cannot be done at all; null if it can"}
CREATED: Mapping[str, Any] = {
    "type": "object",
    "properties": {"summary": _SUMMARY, "refused": _REFUSED},
    "required": ["summary", "refused"],
    "additionalProperties": False,
}
DECIDED: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "enum": ["nothing", "state", "code"],
            "description": "what you changed: nothing, only state.json, or code (and perhaps state.json)",
        },
        "bump": {
            "type": "string",
            "enum": ["patch", "minor", "major"],
            "description": "for code: a repair, something new, or something that callers must adapt to",
        },
        "summary": _SUMMARY,
        "refused": _REFUSED,
    },
    "required": ["decision", "bump", "summary", "refused"],
    "additionalProperties": False,
}


@cache
def contract() -> str:
    """The rules of an agent's directory, and the library that it is written with."""
    return files("ratchet.agents").joinpath("contract.md").read_text(encoding="utf-8")


def asked(
    action: str,
    description: str,
    message: str,
    spec: Mapping[str, Any],
    earlier: tuple[str, ...],
    settings: Agents,
) -> str:
    """The prompt of one session. `earlier` are the reasons why earlier tries did not pass, oldest first."""
    short = message[: settings.prompt_chars]
    where = "" if short == message else f"\n\n(The rest is in {LOGS}/{MESSAGE_FILE}.)"
    if action == "create":
        parts = [_CREATE, f"What the agent should do:\n\n{short}{where}"]
    else:
        kind = f"severity {spec['severity']}, from {_SOURCES.get(spec['source'], spec['source'])}"
        parts = [_CHANGE, f"What the agent is for:\n\n{description}", f"Feedback ({kind}):\n\n{short}{where}"]
    if earlier:
        listed = "\n".join(f"- {reason}" for reason in earlier)
        parts.append(f"Earlier tries did not pass. Do not make the same mistake again:\n\n{listed}")
    return "\n\n".join(parts)


_SOURCES = {"person": "a person", "tuner": "the agent's own Tuner"}
_CREATE = """\
Design and write a new agent in this directory, which is empty but for .git. Write every file that the contract asks \
for, with a state.json that fits state_schema.json, and tests.py with tests that would fail if the agent were wrong. \
Run the tests before you end. Do not commit: that is done for you."""
_CHANGE = """\
This directory is a copy of a running agent, with its state (state.json) and the end of its logs (logs/). Read the \
feedback and decide what is right for the agent: nothing; a change of its state only, if a lesson or a value is \
enough; or a change of its code, with tests for what changed. Run the tests before you end. Do not commit, and leave \
the version in metadata.json alone: both are done for you."""
