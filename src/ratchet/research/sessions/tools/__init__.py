"""The tools of a specialist's session."""

from ratchet.research.sessions.tools.choice import tool_names, tools_for

__all__ = ["tool_names", "tools_for"]
