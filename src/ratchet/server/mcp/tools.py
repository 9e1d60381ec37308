"""The tools that are endpoints of the API: those that only look, and those that change things.

The second are offered only where somebody has allowed it.
"""

from __future__ import annotations

from ratchet.server.every_operation import EVERY
from ratchet.server.mcp.tool import Declared

_OPERATIONS = [tool for tool in map(Declared.of, EVERY) if tool is not None]
# What answers with text is no operation.
_TEXTS = (
    (
        "read_attempt_diff",
        "Read the change of an attempt",
        "What an attempt changed, kept or not, as a patch.",
        "GET /attempts/{attempt_id}/diff",
    ),
    (
        "read_artifact",
        "Read an artifact",
        "The content of an artifact as text, a part at a time.",
        "GET /artifacts/{sha256}",
    ),
    (
        "read_trial_diff",
        "Read the change of a trial",
        "How the files of a trial differ from those of its parent, as a patch.",
        "GET /research/{run}/trials/{exp}/diff",
    ),
    (
        "read_research_report",
        "Read the report of a research run",
        "A research run as one HTML page for a person, a part at a time; get_research says the same in short.",
        "GET /research/{run}/report",
    ),
)
READING = (
    *(Declared(*each, reads=True, repeatable=True) for each in _TEXTS),
    *(tool for tool in _OPERATIONS if tool.reads),
)
ACTING = tuple(tool for tool in _OPERATIONS if not tool.reads)
