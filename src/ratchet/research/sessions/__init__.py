"""The sessions of specialists: what they are told, the tools they are given, and what these are bound to."""

from typing import TYPE_CHECKING

from ratchet._door import on_demand

if TYPE_CHECKING:
    from ratchet.research.sessions._system_prompt import shared_prompt, system_prompt
    from ratchet.research.sessions._user_prompt import user_prompt
    from ratchet.research.sessions.attending import attended
    from ratchet.research.sessions.hypothesis import hypothesis_of
    from ratchet.research.sessions.sitting import Idea, Sitting, Submit
    from ratchet.research.sessions.tools import tool_names, tools_for
else:
    __getattr__ = on_demand(__name__)

__all__ = [
    "Idea",
    "Sitting",
    "Submit",
    "attended",
    "hypothesis_of",
    "shared_prompt",
    "system_prompt",
    "tool_names",
    "tools_for",
    "user_prompt",
]
