"""Keeps keys out of exports: whatever a tool or a recorded answer holds, it must not be one of this environment's."""

from __future__ import annotations

from collections.abc import Mapping

from ratchet.kernel import Conflict

_ENDINGS = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
# Shorter ones are placeholders, which may stand anywhere.
_SHORTEST = 8


def check_secrets(files: Mapping[str, bytes], environment: Mapping[str, str]) -> None:
    """Raises `Conflict` naming the file and the variable, never the value."""
    for variable, value in environment.items():
        if not variable.upper().endswith(_ENDINGS) or len(value.strip()) < _SHORTEST:
            continue
        for name, content in files.items():
            if value.strip().encode() in content:
                raise Conflict(
                    f"{name} would hold the value of the variable {variable}",
                    hint="take it out of the tool or the workflow, or record a run in which nobody says it",
                )
