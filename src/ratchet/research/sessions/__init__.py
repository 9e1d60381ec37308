"""The sessions of specialists: what they are told, the tools they are given, and what these are bound to."""

from ratchet.research.sessions.attending import attended
from ratchet.research.sessions.hypothesis import hypothesis_of
from ratchet.research.sessions.sitting import Idea, Sitting, Submit
from ratchet.research.sessions.system_prompt import shared_prompt, system_prompt
from ratchet.research.sessions.tools import tool_names, tools_for
from ratchet.research.sessions.user_prompt import user_prompt

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
